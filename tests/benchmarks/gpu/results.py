"""The outcomes as plain values, and what was wanted beside what was measured."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from tests.benchmarks.gpu.contenders.ours import PAGED
from tests.benchmarks.gpu.grid import K
from tests.benchmarks.gpu.session import NO_MEMORY, NO_TIME, Outcome


class Wanted(NamedTuple):
    """One line of what is wanted."""

    what: str
    wanted: str
    measured: str
    """The worst of `rows`; empty if none was measured."""
    rows: int
    met: bool | None


def plain(outcome: Outcome, bandwidth: float) -> dict[str, Any]:
    """One outcome; what was not timed has no figures."""
    row, timing = outcome.row, outcome.timing
    found: dict[str, Any] = {"row": row.label, "kind": row.kind, "tier": row.tier, "contender": outcome.contender}
    shape = {name: value for name, value in asdict(row.shape).items() if name not in ("lengths", "rows")}
    found |= shape | {
        "requests": len(row.shape.rows),
        "context": max(row.shape.lengths),
        "total_rows": row.shape.total_rows,
    }
    if timing is None:
        return found | {"why": outcome.why}
    return found | {
        "seconds": timing.seconds,
        "spread": timing.spread,
        "captured": timing.captured,
        "of_bandwidth": row.shape.least_bytes / timing.seconds / bandwidth,
        "tflops": row.shape.flops / timing.seconds / 1e12,
    }


def wanted(found: Sequence[dict[str, Any]]) -> list[Wanted]:
    """The four lines, each judged by the worst of the rows of ours that it speaks of."""
    ours = [row for row in found if row["contender"] == PAGED and "seconds" in row]
    decode = [row for row in ours if row["kind"] == "decode"]
    large = [row["of_bandwidth"] for row in decode if row["requests"] >= 32 and row["context"] >= 4 * K]
    single = [row["of_bandwidth"] for row in decode if row["requests"] == 1 and row["context"] == 128 * K]
    prompts = [row for row in ours if row["kind"] == "prefill" and row["total_rows"] >= 16 * K]
    prefill = [row["tflops"] for row in prompts if row["head_dim"] == 128 and row["dtype"] == "bfloat16"]
    return [
        _line("decode, of the copy bandwidth, from batch 32 and context 4,096 on", large, 0.85, "{:.0%}"),
        _line("decode, of the copy bandwidth, batch 1 and context 131,072", single, 0.60, "{:.0%}"),
        _line("decode, time with page size 1 over page size 64", page_ratios(decode), 1.15, "{:.2f} ×", most=True),
        _line("prefill of 16,384 rows or more, bf16, head_dim 128, TFLOP/s", prefill, 400, "{:.0f}"),
    ]


def faults(found: Iterable[dict[str, Any]]) -> list[str]:
    """Where ours could not be timed, for want of neither time nor memory."""
    ours = (row for row in found if row["contender"] == PAGED and "seconds" not in row)
    return [f"{row['row']}: {row['why']}" for row in ours if row["why"] not in (NO_TIME, NO_MEMORY)]


def page_ratios(decode: Iterable[dict[str, Any]]) -> list[float]:
    """Of rows that differ in nothing but the page size: seconds with 1 over seconds with 64."""
    by_size: dict[int, dict[tuple[Any, ...], float]] = {1: {}, 64: {}}
    for row in decode:
        if row["block_size"] in by_size:
            key = tuple(row[name] for name in ("requests", "context", "group", "head_dim", "num_kv_heads", "dtype"))
            by_size[row["block_size"]][key] = row["seconds"]
    return [seconds / by_size[64][key] for key, seconds in by_size[1].items() if key in by_size[64]]


def _line(what: str, values: Sequence[float], limit: float, form: str, *, most: bool = False) -> Wanted:
    worst: Callable[[Sequence[float]], float] = max if most else min
    text = f"{'≤' if most else '≥'} {form.format(limit)}"
    if not values:
        return Wanted(what, text, "", 0, None)
    value = worst(values)
    return Wanted(what, text, form.format(value), len(values), value <= limit if most else value >= limit)
