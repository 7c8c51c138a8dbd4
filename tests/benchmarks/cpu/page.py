"""The page: what was measured beside what is wanted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.benchmarks.peer.table import figure, listing

HEAD = """# Attention on the CPU, measured

`make bench-cpu` measures this anew and writes this page: everything on a line in one process and in turn, round by
round; the times are medians. It needs vLLM, which it installs as `make bench-peer` does;
`.venv/bin/python -m tests.benchmarks.cpu --page somewhere.md` measures without. Measure on a machine that does nothing
else: threads that wait for each other while others run take several times as long (see [cpu.md](../cpu.md)).

Before each the caches are swept, by reading other memory. Ours is `paged_attention` with all of its checks, blocks
anywhere in the pool. *Reading* is a loop that reads the same keys and values in order and does nothing with them: what
memory gives. A prefix that is shared counts once. SDPA is torch's, on contiguous tensors, which nobody has had to
gather; in a decode it gets the query heads of a group as rows of their KV head, which suits it best. vLLM is the kernel
of its CPU backend, in its own layout, without what it plans once a step. A model with 32 query heads, 8 KV heads and a
head_dim of 128; pages of 32 tokens unless a line says otherwise.

"""
WANTED = """
## What is wanted

"""


@dataclass(frozen=True)
class Line:
    """Seconds by contender."""

    what: str
    kv_bytes: int
    """That must be read."""
    read_bytes: int
    """That "read" reads."""
    seconds: Mapping[str, float]

    def times(self, name: str) -> float | None:
        """How many times ours another one takes."""
        return self.seconds[name] / self.seconds["ours"] if name in self.seconds else None

    @property
    def of_reading(self) -> float:
        """The speed of ours, as a fraction of that of reading."""
        return self.seconds["read"] / self.read_bytes * self.kv_bytes / self.seconds["ours"]


def render(where: Mapping[str, str], lines: Sequence[Line], written: Line) -> str:
    """The page, in Markdown."""
    titles = ["what", "ours, ms", "GB/s", "of the speed of reading", "SDPA, ms", "times ours", "vLLM, ms", "times ours"]
    table = listing(titles, (cells(line) for line in lines))
    verdicts = {True: "met", False: "**not met**", None: "not measured"}
    rows = [
        (what, limit, "–" if got is None else figure(got), verdicts[met])
        for what, limit, got, met in wanted(lines, written)
    ]
    return "".join(
        [HEAD, listing(["", ""], where.items()), "\n", table, WANTED, listing(["what", "wanted", "measured", ""], rows)]
    )


def cells(line: Line) -> tuple[str, ...]:
    """Of a line of the first table."""
    own = line.seconds["ours"]
    others = []
    for name in ("sdpa", "vllm"):
        ratio = line.times(name)
        others += ["–", "–"] if ratio is None else [figure(1e3 * line.seconds[name]), f"{figure(ratio)} ×"]
    prompt = "prompt" in line.what
    speed = ("–", "–") if prompt else (figure(line.kv_bytes / own / 1e9), f"{line.of_reading:.0%}")
    return (line.what, figure(1e3 * own), *speed, *others)


def wanted(lines: Sequence[Line], written: Line) -> list[tuple[str, str, float | None, bool | None]]:
    """(what, wanted, measured, whether it is met)."""
    by = {line.what: line for line in lines}

    def at_least(what: str, got: float | None, least: float) -> tuple[str, str, float | None, bool | None]:
        return what, f"≥ {least:g}", got, None if got is None else got >= least

    def at_most(what: str, got: float | None, most: float) -> tuple[str, str, float | None, bool | None]:
        return what, f"≤ {most:g}", got, None if got is None else got <= most

    found = []
    for dtype in ("bfloat16", "float16", "float32"):
        line = by[f"{dtype}, 8 x 4,096"]
        found.append(at_least(f"SDPA's time / ours, decode, {dtype}", line.times("sdpa"), 1.8))
        found.append(at_least(f"vLLM's time / ours, decode, {dtype}", line.times("vllm"), 1.0))
    decode, one = by["bfloat16, 8 x 4,096"], by["bfloat16, 1 x 32,768"]
    found.append(at_most("time / time of reading, decode, bfloat16", 1 / decode.of_reading, 1.3))
    rate = one.kv_bytes / one.seconds["ours"] / (decode.kv_bytes / decode.seconds["ours"])
    found.append(at_least("bandwidth of 1 x 32,768 / that of 8 x 4,096", rate, 0.85))
    pages = [line.seconds["ours"] for what, line in by.items() if what.startswith("bfloat16, 8 x 4,096")]
    found.append(at_most("slowest / fastest of pages of 8, 16, 32 and 128", max(pages) / min(pages), 1.15))
    alone, together = by["bfloat16, 16 x 4,096"], by["bfloat16, 16 x 4,096, 90 % shared"]
    share = together.seconds["ours"] / alone.seconds["ours"]
    found.append(at_most("time of 16 requests that share 90 % / that of 16 that share nothing", share, 0.25))
    for dtype in ("bfloat16", "float32"):
        ratio = by[f"{dtype}, a prompt of 2,048"].times("sdpa")
        found.append(at_most(f"time / SDPA's, a prompt of 2,048, {dtype}", ratio and 1 / ratio, 1.15))
    ratio = written.times("copy")
    found.append(at_most(f"write_kv, time / time of copying, {written.what}", ratio and 1 / ratio, 1.15))
    return found
