"""The committed table of what the kernels cost, and the comparison of a fresh audit with it.

Compiling is deterministic: the same kernel sources and the same Triton give the same machine code, so every figure is
compared exactly. A figure that differs is either explained, because the sources differ and the table is written anew,
or it is a fault. Figures of another Triton cannot be compared; then only the hard rules hold (`KernelAudit.problems`).
"""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from pagedkv.optimized.audit.aot import KernelAudit
from pagedkv.optimized.audit.sources import audited_source_hash

FORMAT: Final = 1
TABLE: Final = Path(__file__).parents[4] / "docs" / "kernels" / "audit.json"
"""Of a checkout of the sources; where the package is installed from a wheel there is none."""
UPDATE: Final = "write the table anew with `pagedkv audit --update` and look at the difference"
COMPARED: Final = (
    "registers", "spill_bytes", "shared_bytes", "threads", "occupancy", "kv_load_bits", "matrix", "instructions",
    "inner_loop",
)  # fmt: skip
"""The figures of a row."""


class Comparison(NamedTuple):
    """What a fresh audit has to do with the table."""

    violations: list[str]
    notes: list[str]
    """What could not be compared, and why."""


def document(audits: Sequence[KernelAudit]) -> dict[str, Any]:
    """The table as JSON has it: Triton's version, the hash of the kernel sources, a row an audit."""
    return {
        "pagedkv_audit": FORMAT,
        "triton": version("triton"),
        "kernel_sources": audited_source_hash(),
        "rows": [row(each) for each in audits],
    }


def row(audit: KernelAudit) -> dict[str, Any]:
    """One audit as JSON has it, without what differs from run to run."""
    figures = {name: getattr(audit, name) for name in COMPARED}
    figures["kv_load_bits"] = None if audit.kv_load_bits is None else list(audit.kv_load_bits)
    figures |= {"matrix": list(audit.matrix), "inner_loop": dict(audit.inner_loop)}
    return {"kernel": audit.kernel, "configuration": audit.configuration, "target": audit.target, **figures}


def load(path: Path = TABLE) -> dict[str, Any] | None:
    """A committed table; None if there is none. Raises `ValueError` for a file that is no such table."""
    if not path.exists():
        return None
    table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(table, dict) or table.get("pagedkv_audit") != FORMAT:
        raise ValueError(f"{path} is no audit table of format {FORMAT}")
    return table


def save(table: Mapping[str, Any], path: Path = TABLE) -> None:
    """Write a table, a row a line, so that a difference reads well."""
    head = json.dumps({name: value for name, value in table.items() if name != "rows"}, indent=1)[:-2]
    rows = ",\n  ".join(json.dumps(each) for each in table["rows"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{head},\n "rows": [\n  {rows}\n ]\n}}\n', encoding="utf-8")


def compare(audits: Sequence[KernelAudit], table: Mapping[str, Any] | None, *, whole: bool = True) -> Comparison:
    """Hold fresh audits against the table; `whole`: they are all that the table should have, else some or more.

    A violation names the row. With the hash of these sources in the table, any difference is one; with another hash
    the table is stale, which is one, too.
    """
    if table is None:
        return Comparison([], ["there is no committed table here to compare with"])
    if table["triton"] != version("triton"):
        note = f"the table is of Triton {table['triton']}, this is {version('triton')}: only the hard rules are checked"
        return Comparison([], [note])
    stale = table["kernel_sources"] != audited_source_hash()
    committed = {(each["configuration"], each["target"]): each for each in table["rows"]}
    found = []
    if stale:
        found.append(
            f"the table is of kernel sources {table['kernel_sources']}, these are {audited_source_hash()}: {UPDATE}"
        )
    for each in audits:
        name = f"{each.configuration} on {each.target}"
        before = committed.pop((each.configuration, each.target), None)
        if before is not None:
            found += [f"{name}: {what}" for what in _changes(row(each), before, stale)]
        elif whole:
            found.append(f"{name}: is not in the table")
    if whole:
        found += [f"{name} on {target}: is in the table and no longer audited" for name, target in committed]
    return Comparison(found, [])


def _changes(now: Mapping[str, Any], before: Mapping[str, Any], stale: bool) -> list[str]:
    why = "changed" if stale else "changed though neither the sources nor Triton did"
    return [f"{name} {why}: {now[name]}, was {before[name]}" for name in COMPARED if now[name] != before[name]]
