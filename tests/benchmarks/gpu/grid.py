"""What is timed, the most important first: if time runs out, the end of the list is what is left out.

Tier 0 is what the page compares with what is wanted, and what others are timed on first. Tier 1 goes along every axis
by itself, tier 2 is the rest of the product.
"""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from tests.benchmarks.gpu.shapes import Shape

K = 1024
BATCHES = (1, 8, 32, 64, 128, 256)
CONTEXTS = (512, 1 * K, 2 * K, 4 * K, 8 * K, 16 * K, 32 * K, 64 * K, 128 * K)
GROUPS = (1, 4, 8)
PAGES = (1, 16, 64, 128)
PREFILLS = tuple(product((1, 4), (2 * K, 4 * K, 8 * K, 16 * K)))
"""Requests, and rows of each."""
CHUNK, CHUNK_CONTEXT = 512, 32 * K


class Row(NamedTuple):
    """One line of the results, before anything is measured."""

    kind: str
    """"decode", "prefill", "chunked" or "mixed"."""
    shape: Shape
    tier: int

    @property
    def label(self) -> str:
        """Requests × rows over positions, where all requests are alike.

        >>> Row("decode", Shape(lengths=(4096,) * 32, rows=(1,) * 32), 0).label
        'decode 32 × 1 over 4,096'
        """
        alike = {*zip(self.shape.rows, self.shape.lengths, strict=True)}
        parts = []
        for rows, length in sorted(alike):
            count = sum((rows, length) == each for each in zip(self.shape.rows, self.shape.lengths, strict=True))
            parts.append(f"{count} × {rows:,} over {length:,}")
        return f"{self.kind} {' + '.join(parts)}"


def decode(batch: int, context: int, tier: int, *, group: int = 4, block_size: int = 16) -> Row:
    """A row a request, all of one length."""
    return Row("decode", Shape((context,) * batch, (1,) * batch, group=group, block_size=block_size), tier)


def prefill(requests: int, rows: int, tier: int) -> Row:
    """Whole prompts."""
    return Row("prefill", Shape((rows,) * requests, (rows,) * requests), tier)


def chunked(requests: int, tier: int) -> Row:
    """A chunk at the end of a long prompt."""
    return Row("chunked", Shape((CHUNK_CONTEXT,) * requests, (CHUNK,) * requests), tier)


def mixed(decodes: int, context: int, tier: int) -> Row:
    """Decoding requests beside one chunk: a step of an engine that prefills in chunks."""
    return Row("mixed", Shape((*(context,) * decodes, CHUNK_CONTEXT), (*(1,) * decodes, CHUNK)), tier)


def rows() -> list[Row]:
    """Every row once, by tier; within a tier in the order of importance."""
    seen: dict[tuple[str, Shape], Row] = {}
    for row in (*_first(), *_axes(), *_rest()):
        seen.setdefault((row.kind, row.shape), row)
    return sorted(seen.values(), key=lambda row: row.tier)


def _first() -> Iterator[Row]:
    yield decode(32, 4 * K, 0)
    yield decode(1, 128 * K, 0)
    yield prefill(4, 16 * K, 0)
    yield from (decode(32, 4 * K, 0, block_size=size) for size in (64, 1))
    yield from (decode(batch, context, 0) for batch, context in ((128, 4 * K), (32, 16 * K)))
    yield prefill(1, 16 * K, 0)
    yield chunked(4, 0)
    yield mixed(64, 4 * K, 0)


def _axes() -> Iterator[Row]:
    yield from (decode(batch, 4 * K, 1) for batch in BATCHES)
    yield from (decode(32, context, 1) for context in CONTEXTS)
    yield from (decode(1, context, 1) for context in CONTEXTS)
    for group in GROUPS:
        yield from (decode(batch, context, 1, group=group) for batch, context in ((32, 4 * K), (1, 128 * K)))
    for size in (*PAGES, 256):  # 256: what some others ask for
        yield from (decode(batch, context, 1, block_size=size) for batch, context in ((32, 4 * K), (1, 128 * K)))
    yield from (prefill(requests, rows, 1) for requests, rows in PREFILLS)
    yield from (chunked(1, 1), mixed(256, 4 * K, 1), mixed(8, 32 * K, 1))


def _rest() -> Iterator[Row]:
    for size, group, context, batch in product((16, 64, 1, 128), (4, 8, 1), CONTEXTS, BATCHES):
        yield decode(batch, context, 2, block_size=size, group=group)


def smoke() -> list[Row]:
    """A row of each kind so small that the CPU runs them: for the lane's own tests, not for figures."""
    shapes = {
        "decode": ((33, 33, 33), (1, 1, 1)),
        "prefill": ((20, 20), (20, 20)),
        "chunked": ((40, 40), (8, 8)),
        "mixed": ((17, 40), (1, 8)),
    }
    return [
        Row(kind, Shape(lengths, rows, num_kv_heads=2, group=2, head_dim=16), 0)
        for kind, (lengths, rows) in shapes.items()
    ]
