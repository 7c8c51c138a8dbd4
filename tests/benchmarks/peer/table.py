"""The page of the results, from what a run has written down."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

DOCUMENTS = Path(__file__).parents[3] / "docs" / "benchmarks"
"""Where `manager.json` and `manager.md` are kept."""

HEAD = """# The block manager beside vLLM's

Both managers do the same work in one process and in turn, round by round; a line gives the medians. Ours is
`pagedkv.optimized.manager.BlockManager`, the other is the `KVCacheManager` of vLLM {vllm}, driven the way its own
scheduler drives it: prefix caching on, blocks of 16 tokens, its default hash (sha256). Timed is what happens inside the
managers. The plan of a step of ours has block tables and slots in it; vLLM makes those elsewhere, untimed here. Ours is
compiled by numba; a line says so where it is not.

`make bench-peer` measures all of it anew and writes this page. It installs vLLM, about 3 GB, into an environment of its
own, `.venv-peer`. Measured with:

    {command}

"""
ONE = """## One operation

The ratio is how many times the time of ours the other takes. A memory line compares bytes.

"""
WHERE = """
### Where the time of a step goes

Shares of a step of 256 requests, by function (`python -m tests.benchmarks.where_time_goes`). The compiled loops do not
show by themselves: what they take counts for the functions that call them.

"""

CURVE = """
## In a pool of any size

Medians of ours in microseconds, in a pool that is full: sixteen requests run, all other blocks are idle and indexed,
so every new block evicts one. The last column is the largest over the smallest; wanted is 1.

"""
CHURN = """
## Recorded workloads

Every request of the trace from beginning to end, first come, first served. A step takes {step_ms:g} ms of virtual
time, decodes one token for each running request and prefills whole prompts up to {prefill:,} tokens. The pool has
{pool:.0%} of the blocks that are used at the peak where blocks are unlimited; when they run out, the latest request
loses its own and is computed again later. Operations are requests that enter, come back, lose their blocks or leave,
and decoded tokens; their rate counts the time inside the manager only. The ceiling is the fraction of prompt tokens
that are found when nothing is ever evicted; it follows from the trace alone. The tokens are pseudo-random; the shared
prefixes of Mooncake are the recorded ones, in Azure there are none.

"""
FOOT = """
The traces: the first 2,000 requests of the [Azure LLM inference trace
2023](../../tools/pagedkv/simulation/data/NOTICE) (CC BY 4.0), and the 12,031 of the [Mooncake conversation
trace](../../tests/benchmarks/data/NOTICE) (Apache-2.0); each line says how many were replayed.
"""


def render(result: dict[str, Any]) -> str:
    """The page, in Markdown."""
    parts = [HEAD.format(vllm=result["machine"]["vllm"], command=result["command"])]
    parts.append(listing(["", ""], result["machine"].items()))
    parts += ["\n", ONE, one_operation(result["rows"])]
    shares = [(f"`{name}`", f"{share:.1%}") for share, name in result["profile"]]
    parts += [WHERE, listing(["function", "share"], shares)]
    parts += [CURVE, curve(result["sizes"], result["curve"])]
    pace = result["pace"]
    text = CHURN.format(step_ms=1e3 * pace["step_s"], prefill=pace["prefill_tokens"], pool=result["pool"])
    return "".join([*parts, text, churn(result["churn"]), FOOT])


def listing(titles: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """A table; all columns but the first are aligned to the right."""
    rule = ["---", *["--:"] * (len(titles) - 1)]
    return "".join("| " + " | ".join(str(cell) for cell in cells) + " |\n" for cells in (titles, rule, *lines))


def one_operation(rows: Sequence[dict[str, Any]]) -> str:
    """Wanted stands beside measured."""
    titles = ["what", "ours", "the other", "ratio", "wanted", ""]
    return listing(
        titles,
        (
            (
                row["what"],
                f"{figure(row['ours'])} {row['unit']}",
                f"{figure(row['other'])} {row['unit']}",
                f"{figure(row['other'] / row['ours'])} ×",
                row["wanted"],
                {True: "met", False: "**not met**", None: ""}[row["met"]],
            )
            for row in rows
        ),
    )


def curve(sizes: Sequence[int], costs: dict[str, list[float]]) -> str:
    """A column for each size of the pool."""
    titles = ["blocks in the pool", *(f"{size:,}" for size in sizes), "spread"]
    return listing(
        titles,
        ((name, *map(figure, values), f"{figure(max(values) / min(values))} ×") for name, values in costs.items()),
    )


def churn(runs: Sequence[dict[str, Any]]) -> str:
    """Two lines for each trace, ours and the other's."""
    titles = ["trace", "requests", "blocks", "manager", "operations/s", "ratio"]
    titles += ["hit rate", "ceiling", "preemptions", "computed again", "most running"]
    lines = []
    for run in runs:
        ratio = run["ours"]["operations_per_s"] / run["other"]["operations_per_s"]
        for name, side in (("ours", run["ours"]), ("the other", run["other"])):
            mine = name == "ours"
            trace = (run["trace"], f"{run['num_requests']:,}", f"{run['num_blocks']:,}") if mine else ("", "", "")
            lines.append(
                (
                    *trace,
                    name,
                    f"{side['operations_per_s']:,.0f}",
                    f"{figure(ratio)} ×" if mine else "",
                    f"{side['hit_rate']:.2%}",
                    f"{run['ceiling']:.2%}" if mine else "",
                    f"{side['preemptions']:,}",
                    f"{side['recomputed_tokens']:,}",
                    side["peak_running"],
                )
            )
    return listing(titles, lines)


def figure(value: float) -> str:
    """Three significant digits, plainly written.

    >>> [figure(value) for value in (0.01234, 1.239, 15.55, 1844.6)]
    ['0.0123', '1.24', '15.6', '1,845']
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"
