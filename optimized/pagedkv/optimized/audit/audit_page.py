"""The readable side of the committed table: two short tables in Markdown, put between two marks of a page."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pagedkv.optimized.audit.machine_code import CLASSES
from pagedkv.optimized.audit.targets import TARGETS

MARKED: Final = re.compile(r"(<!-- audit: .*? -->\n).*?(<!-- /audit -->)", re.DOTALL)
MIXED: Final = "sm_90"
"""The target whose inner loops are shown."""


def rewrite(page: Path, table: Mapping[str, Any]) -> None:
    """Put the tables of `table` between the marks of a page. Raises `ValueError` if it has none."""
    text = page.read_text(encoding="utf-8")
    made, count = MARKED.subn(lambda match: match[1] + tables(table) + match[2], text)
    if count != 1:
        raise ValueError(f"{page} has {count} places for the tables, not one: <!-- audit: … --> to <!-- /audit -->")
    page.write_text(made, encoding="utf-8")


def tables(table: Mapping[str, Any]) -> str:
    """What the kernels cost by target, and the inner loops, as Markdown."""
    rows: Sequence[Mapping[str, Any]] = table["rows"]
    head = (
        f"Triton {table['triton']}, sources of all kernels {table['kernel_sources']}: {len(rows)} compilations of "
        f"{len({row['configuration'] for row in rows})} configurations.\n\n"
    )
    return head + costs(rows) + "\n" + loops(rows) + "\n"


def costs(rows: Sequence[Mapping[str, Any]]) -> str:
    """For each kernel and target the range over its configurations."""
    names = ("kernel", "target", "compiled", "registers", "spilled, bytes", "shared memory, KiB", "occupancy, %",
             "KV load, bits", "matrix")  # fmt: skip
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        for target in TARGETS:
            these = [row for row in rows if (row["kernel"], row["target"]) == (kernel, target)]
            if these:
                bits = [bits for row in these for bits in row["kv_load_bits"] or ()]
                stems = sorted({name.split(".")[0] for row in these for name in row["matrix"]})
                cells = [
                    kernel, target, len(these), span(row["registers"] for row in these),
                    span(row["spill_bytes"] for row in these), span(row["shared_bytes"] // 1024 for row in these),
                    span(round(100 * row["occupancy"]) for row in these), span(bits) if bits else "–",
                    ", ".join(stems) or "–",
                ]  # fmt: skip
                lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def loops(rows: Sequence[Mapping[str, Any]]) -> str:
    """The instructions of one turn of the inner loop on `MIXED`, by class, a row a configuration."""
    mixed = [row for row in rows if row["target"] == MIXED and row["inner_loop"]]
    classes = [kind for kind in (*CLASSES, "other") if any(kind in row["inner_loop"] for row in mixed)]
    lines = [
        f"| inner loop on {MIXED} | all | {' | '.join(classes)} | matrix instruction |",
        f"|---|{'---|' * (len(classes) + 2)}",
    ]
    for row in mixed:
        counts = [row["inner_loop"].get(kind, 0) for kind in classes]
        lines.append(
            f"| {row['configuration']} | {sum(counts)} | {' | '.join(map(str, counts))} | "
            f"{', '.join(row['matrix']) or '–'} |"
        )
    return "\n".join(lines) + "\n"


def span(values: Iterable[int]) -> str:
    """The least and the most.

    >>> span([3, 1, 2]), span([4, 4])
    ('1–3', '4')
    """
    found = sorted(set(values))
    return f"{found[0]}–{found[-1]}" if len(found) > 1 else str(found[0])
