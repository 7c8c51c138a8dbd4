"""Rewriting rows of `tiles.csv`, by which the kernels are launched: what is not tuned stays as it is."""

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from pagedkv.optimized.attention import tuned

TABLE = Path(tuned.__file__).with_name("tiles.csv")
COLUMNS = (*tuned.KEYS, "tile", "rows", "num_warps", "num_stages", "source")


def rewritten(text: str, rows: Iterable[Mapping[str, str]]) -> str:
    """The table with these rows: one that holds for the same launches is replaced where it stands, others come last.

    Raises `ValueError` if the table, or a row, has other columns.
    """
    reader = csv.DictReader(text.splitlines())
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise ValueError(f"the table has columns {reader.fieldnames}, not {COLUMNS}")
    by_key = {_key(row): row for row in reader}
    for row in rows:
        if {*row} != {*COLUMNS}:
            raise ValueError(f"a row has columns {sorted(row)}, not {COLUMNS}")
        by_key[_key(row)] = dict(row)
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(by_key.values())
    return out.getvalue()


def _key(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in tuned.KEYS)
