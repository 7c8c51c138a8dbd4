"""Two recorded workloads as token streams: the Azure 2023 and the Mooncake conversation traces.

A prompt is a row of chunks of 512 tokens, each chunk a pseudo-random run that follows from its id. In the Mooncake
trace the ids are recorded, and requests with the same first ids share that prefix. The Azure trace records none, so
there every request has ids of its own.
"""

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pagedkv.simulation.arrivals import bundled

from tests.benchmarks.peer.interface import BLOCK_SIZE, Int32

CHUNK = 512
VOCABULARY = 100_000
MOONCAKE = Path(__file__).parent.parent / "data" / "mooncake_conversation.csv.gz"


@dataclass(frozen=True)
class Arrival:
    """One request of a trace. `arrival_s`: seconds since the first one."""

    name: int
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    chunks: tuple[int, ...]

    def prompt(self) -> Int32:
        """(prompt_tokens,) token ids."""
        starts = np.array(self.chunks, np.int64)[:, None] * CHUNK
        return pseudo_random((starts + np.arange(CHUNK)).ravel()[: self.prompt_tokens])

    @property
    def final_length(self) -> int:
        """Positions whose KV is needed, at the most: the last token is never read again."""
        return self.prompt_tokens + self.output_tokens - 1


def pseudo_random(numbers: NDArray[np.int64]) -> Int32:
    """A token for each number, the same on every machine. Weyl's sequence, then two rounds of mixing (64 bits).

    >>> pseudo_random(np.arange(4))
    array([    0, 30278,    80, 93377], dtype=int32)
    """
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for _ in range(2):
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return ((mixed >> np.uint64(32)) % np.uint64(VOCABULARY)).astype(np.int32)


def generated(names: Sequence[int], positions: Sequence[int]) -> Int32:
    """The token that each of these requests generates as its positions[i]-th."""
    return pseudo_random((np.array(names, np.int64) << 20) + np.array(positions, np.int64) + (1 << 50))


def azure(limit: int) -> list[Arrival]:
    """The first `limit` requests of the Azure 2023 conversation trace, of which the first 2,000 are at hand."""
    arrivals, chunk = [], 0
    for name, row in enumerate(bundled(limit)):
        count = -(-row.prompt_tokens // CHUNK)
        chunks = tuple(range(chunk, chunk + count))
        arrivals.append(Arrival(name, row.arrival_s, row.prompt_tokens, max(1, row.output_tokens), chunks))
        chunk += count
    return arrivals


def mooncake(limit: int) -> list[Arrival]:
    """The first `limit` requests of the 12,031 of the Mooncake conversation trace."""
    with gzip.open(MOONCAKE, "rt", encoding="ascii") as lines:
        return list(islice(_mooncake_rows(lines), limit))


def _mooncake_rows(lines: Iterator[str]) -> Iterator[Arrival]:
    next(lines)
    for name, line in enumerate(lines):
        time_ms, prompt_tokens, output_tokens, ids = line.strip().split(",")
        spans = [[int(end) for end in span.split("-")] for span in ids.split()]
        chunks = tuple(chunk for span in spans for chunk in range(span[0], span[-1] + 1))
        yield Arrival(name, int(time_ms) / 1e3, int(prompt_tokens), int(output_tokens), chunks)


def ceiling(arrivals: Sequence[Arrival]) -> float:
    """The fraction of prompt tokens that are found if nothing is ever evicted and each prompt is written at once.

    In whole blocks, and at least one token of each prompt is computed: what a manager can return.
    """
    seen: set[int] = set()
    found = 0
    for arrival in arrivals:
        shared = next((i for i, chunk in enumerate(arrival.chunks) if chunk not in seen), len(arrival.chunks))
        found += min(shared * CHUNK, arrival.prompt_tokens - 1) // BLOCK_SIZE * BLOCK_SIZE
        seen.update(arrival.chunks)
    return found / sum(arrival.prompt_tokens for arrival in arrivals)
