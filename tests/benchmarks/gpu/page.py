"""The page of one card, from what a run has written down."""

from collections.abc import Iterable, Sequence
from typing import Any

from tests.benchmarks.gpu.results import wanted
from tests.benchmarks.peer.table import figure, listing

HEAD = """# Attention on {card}

Written by `make gpu`, and not by hand; [gpu.md](gpu.md) says how it is measured. Measured with:

    {command}

"""
WANTED = """
## Wanted and measured

The worst of the rows that a line speaks of, and how many they are.

"""
KINDS = {
    "decode": """
## Decode

One query row a request. Context and page size in tokens; group: query heads a KV head; {heads} KV heads. The fraction
is of the copy bandwidth above: bytes of all keys and values once, of the query and of the output, over the time.

""",
    "prefill": """
## Prefill

Whole prompts. The operations of causal attention are counted exactly: 4 × head_dim for each query head and each
position that a row sees.

""",
    "chunked": """
## Chunked prefill

The last rows of long prompts whose beginning is in the cache.

""",
    "mixed": """
## Mixed

Decoding requests and a chunk of a prompt in one call.

""",
}
POOL = """
## The device pool

Microseconds of an operation for all rows, by replays of a CUDA graph, and of a decode step of one layer, by the clock
of the host until the device has done it. "Blocks from the host": the block manager hands them out, and tables, lengths
and slots are copied before each step.

"""
LEFT_OUT = """
## Not measured

"""


def render(result: dict[str, Any]) -> str:
    """The page, in Markdown."""
    about, found = result["machine"], result["rows"]
    parts = [HEAD.format(card=about["card"], command=result["command"])]
    facts = {**about, "copy bandwidth": f"{result['copy_bandwidth'] / 1e12:.2f} TB/s, bytes read and bytes written"}
    parts += [listing(["", ""], facts.items()), WANTED, _wanted(found)]
    for kind, text in KINDS.items():
        timed = [row for row in found if row["kind"] == kind and "seconds" in row]
        if timed:
            heads = "/".join(sorted({str(row["num_kv_heads"]) for row in timed}))
            parts += [text.format(heads=heads), _table(timed)]
    if result.get("pool"):  # a page from before the pool has none
        parts += [POOL, pool_lines(result["pool"])]
    missing = [row for row in found if "seconds" not in row]
    return "".join([*parts, *([LEFT_OUT, _left_out(missing)] if missing else [])])


def pool_lines(found: Iterable[dict[str, Any]]) -> str:
    """A table of what `measure_pool` has found."""
    return listing(["what", "rows", "µs", "±"], ((line["what"], line["rows"], *_time(line)) for line in found))


def _time(line: dict[str, Any]) -> tuple[str, str]:
    if "seconds" not in line:
        return line["why"].replace("|", "/"), ""
    eager = "" if line["captured"] else " (eager)"
    return figure(1e6 * line["seconds"]) + eager, f"{line['spread']:.0%}"


def _wanted(found: Sequence[dict[str, Any]]) -> str:
    verdicts = {True: "met", False: "**not met**", None: "not measured"}
    titles = ["what", "wanted", "measured", "rows", ""]
    return listing(
        titles, ((line.what, line.wanted, line.measured, line.rows, verdicts[line.met]) for line in wanted(found))
    )


def _table(rows: Iterable[dict[str, Any]]) -> str:
    titles = ["launch", "group", "page", "who", "µs", "±", "of bandwidth", "TFLOP/s"]
    return listing(titles, (_cells(row) for row in rows))


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    rates = (f"{row['of_bandwidth']:.0%}", figure(row["tflops"]))
    return (row["row"], row["group"], row["block_size"], row["contender"], *_time(row), *rates)


def _left_out(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each contender and reason, with how many launches it cost."""
    reasons: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row["contender"], row["why"].replace("|", "/"))
        reasons[key] = reasons.get(key, 0) + 1
    return listing(["who", "why", "launches"], ((*key, count) for key, count in reasons.items()))
