"""The committed table of numerics: the worst rho of every configuration, how it was run, and on which kernel sources.

`python -m pagedkv.cli.parts.numerics_table` (`make pages`) measures what this machine can run and writes
`docs/kernels/numerics.json` and the page that is generated from it. Rows from GPUs that are not here stay as they are;
kernel sources with another hash mark them as stale.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pagedkv.cli.inputs import progress
from pagedkv.cli.parts.interpreted import AS_STORED, UPCAST, narrow
from pagedkv.conformance.attention import AttentionReport, Configuration, run
from pagedkv.conformance.attention.cases import SHAPES
from pagedkv.conformance.attention.plan import Size
from pagedkv.optimized.audit.sources import kernel_source_hash
from pagedkv.spec.attention_subject import AttentionSubject

ON_A_GPU, COMPILED = "on a GPU", "compiled only"
HOW = (ON_A_GPU, UPCAST, AS_STORED, COMPILED)
"""How a row was run, the strongest evidence first."""

NAME = "numerics"
DIRECTORY = Path("docs") / "kernels"


@dataclass(frozen=True)
class Row:
    """One configuration, on one class of requests."""

    how: str
    """One of `HOW`."""
    dtype: str
    features: tuple[str, ...]
    shape: str
    """One of the kit's classes of requests; for `COMPILED` the kernel."""
    rho: float | None
    """The largest error over its bound, to 3 places; None where nothing ran."""
    sources: str
    """`kernel_source_hash()` of what ran."""
    card: str = ""
    date: str = ""
    """With `card`: where and when a GPU ran it."""
    count: int = 0
    """For `COMPILED`: head dims, groups and block sizes, in all combinations."""

    @property
    def configuration(self) -> str:
        """In words."""
        return f"{self.dtype} {'+'.join(self.features) or 'plain'}"


def measured(report: AttentionReport, how: str, card: str = "", date: str = "") -> list[Row]:
    """The rows of a report of the kit. `ValueError` for a law that does not hold: such a table is not written."""
    if not report.ok:
        raise ValueError("\n".join(report.lines()))
    return [
        Row(how, each.dtype, each.features, shape, round(each.rhos[shape], 3), kernel_source_hash(), card, date)
        for each in report.configurations
        for shape in SHAPES
        if shape in each.rhos
    ]


def compiled() -> list[Row]:
    """What `make audit` compiles and nothing runs without a GPU, by kernel, dtype and options."""
    from pagedkv.optimized.attention.shipped import configurations  # noqa: PLC0415  # needs Triton

    counts: dict[tuple[str, tuple[str, ...], str], int] = {}
    for each in configurations():
        if each.mask is not None:
            key = (each.dtype, OPTIONS_OF[each.mask], each.kernel)
            counts[key] = counts.get(key, 0) + 1
    return [Row(COMPILED, *key, None, kernel_source_hash(), count=counts[key]) for key in sorted(counts)]


OPTIONS_OF: Mapping[str, tuple[str, ...]] = {
    "causal": (),
    "full": ("non_causal",),
    "window": ("window",),
    "softcap": ("softcap",),
    "alibi": ("alibi",),
    "sinks": ("sinks",),
    "all": ("window", "softcap", "alibi", "sinks"),
}
"""The kit's options by the audit's name of a mask."""


def of_this_machine() -> list[Row]:
    """Interpret the kernels, list what is compiled, and run on the GPU if there is one."""
    import torch  # noqa: PLC0415  # reading the table needs no torch

    from pagedkv.optimized.attention.subject import InterpretedTritonAttention, OptimizedAttention  # noqa: PLC0415  # likewise

    def hold(subject: AttentionSubject, size: Size, how: str, only: Sequence[Configuration] | None = None) -> list[Row]:
        report = run(subject, seed=0, size=size, only=only, progress=lambda line: progress(f"{line} ({how})"))
        return measured(report, how, *((card, date) if how == ON_A_GPU else ()))

    card, date = "", datetime.now(UTC).date().isoformat()
    torch.set_num_threads(1)
    rows = hold(InterpretedTritonAttention(), "tiny", UPCAST)
    rows += hold(InterpretedTritonAttention(upcast=False), "tiny", AS_STORED, narrow())
    if torch.cuda.is_available():
        card = torch.cuda.get_device_name()
        rows += hold(OptimizedAttention("cuda"), "full", ON_A_GPU)
    return rows + compiled()


def merged(before: Iterable[Row], fresh: Sequence[Row]) -> list[Row]:
    """`fresh`, and the rows of GPUs that `fresh` has none of, in a fixed order."""
    cards = {row.card for row in fresh}
    rows = [*fresh, *(row for row in before if row.how == ON_A_GPU and row.card not in cards)]
    return sorted(rows, key=lambda row: (HOW.index(row.how), row.card))


def load(directory: Path) -> list[Row]:
    """The rows of the committed table; none if there is none yet."""
    path = directory / f"{NAME}.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [Row(**{**row, "features": tuple(row["features"])}) for row in found]


def save(rows: Sequence[Row], directory: Path) -> None:
    """Write the numbers, a row a line, and the page."""
    lines = ",\n".join("  " + json.dumps(_told(row), allow_nan=False) for row in rows)
    text = f'{{"pagedkv_numerics": 1, "rows": [\n{lines}\n]}}\n'
    (directory / f"{NAME}.json").write_text(text, encoding="utf-8")
    (directory / f"{NAME}.md").write_text(page(rows, kernel_source_hash()), encoding="utf-8")


def _told(row: Row) -> dict[str, Any]:
    """What a row says; fields that do not matter to it are left out."""
    return {name: value for name, value in asdict(row).items() if value not in ("", 0, None) or name == "rho"}


HEAD = """# Numerics of the kernels

Every configuration of the attention kernels (a dtype with a set of options) by class of requests: *decode* has one
query row, *speculative* 2 to 8, *prefill* more, alone and in mixed batches. A number is **rho**, the largest error of
any element of the output and the log-sum-exp divided by its proven bound (`pagedkv.spec.bound`) on the values as
stored: 1 is the limit, and nothing is tuned. Output in 16 bits comes near 1 by its own rounding. Bitwise relations and
exact probes held in the same runs, or this page would not have been written. Head dims 16 to 256, groups 1 to 8 and
block sizes 1 to 256 take turns (`pagedkv.conformance.attention.shapes`).

`make pages` measures what a machine can run and writes this page and `numerics.json`; rows of other machines' GPUs
stay. *sources* is the hash of the kernels and of what prepares their launches: rows with another hash are **stale**.
"""

NOTES = {
    ON_A_GPU: "The compiled kernels, on larger shapes.",
    UPCAST: "In Triton's interpreter on small shapes, products of float32: indexing, masks, order; no GPU's rounding.",
    AS_STORED: "Likewise, with products of the stored format: weights are rounded to it before they meet V.",
    COMPILED: "How many combinations of head dim, group and block size (`pagedkv.optimized.attention.shipped`)\n"
    "`make audit` compiles for each target. Only a GPU runs them: their tiles are too large for an interpreter.",
}  # fmt: skip


def page(rows: Sequence[Row], sources: str) -> str:
    """The page; rows of other kernel sources than `sources` are marked as stale."""
    parts = [HEAD]
    for how in HOW:
        of_how = [row for row in rows if row.how == how]
        groups = dict.fromkeys((row.card, row.date, row.sources) for row in of_how)
        parts.append(f"## {how[0].upper()}{how[1:]}\n\n{NOTES[how]}\n")
        if not of_how:
            parts.append("None yet: `make pages` on a machine that can adds its rows.\n")
        for group in groups:
            card, date, found = group
            where = f"{card}, {date}, " if card else ""
            stale = "" if found == sources else " (**stale**)"
            same = [row for row in of_how if (row.card, row.date, row.sources) == group]
            parts.append(f"{where}sources `{found}`{stale}\n\n{_table(same)}")
    return "\n".join(parts)


def _table(rows: Sequence[Row]) -> str:
    """A line a configuration, a column a class of requests or kernel."""
    shapes = list(dict.fromkeys(row.shape for row in rows))
    lines = [f"| configuration | {' | '.join(shapes)} |", f"| --- |{' --: |' * len(shapes)}"]
    for configuration in dict.fromkeys(row.configuration for row in rows):
        cells = {row.shape: _cell(row) for row in rows if row.configuration == configuration}
        lines.append(f"| {configuration} | {' | '.join(cells.get(shape, '') for shape in shapes)} |")
    return "\n".join(lines) + "\n"


def _cell(row: Row) -> str:
    return str(row.count) if row.rho is None else f"{row.rho:.3f}"


def main(arguments: Sequence[str]) -> None:
    """Measure, merge with the table in the directory given (`docs/kernels` unless told), write."""
    directory = Path(arguments[0]) if arguments else DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    save(merged(load(directory), of_this_machine()), directory)


if __name__ == "__main__":
    main(sys.argv[1:])
