"""One call of attention, as compiled loops see it: numbers, most of them addresses and steps in bytes."""

from typing import Final, NamedTuple

TILE: Final = 32
"""Positions that are taken in at once, counted from the beginning of a span."""


class Work(NamedTuple):
    """Where everything lies. A cache is reached by block, token within it, and head; steps are bytes."""

    kind: int
    """How query, caches and output are stored: `FLOAT32`, …"""
    in_pairs: bool
    """Numbers stay bfloat16, two in the place of a float32, and pairs are multiplied at once."""
    head_dim: int
    value_dim: int
    num_kv_heads: int
    group: int
    """Query heads that a KV head serves."""
    block_size: int
    query: int
    query_token: int
    query_head: int
    keys: int
    keys_block: int
    keys_token: int
    keys_head: int
    values: int
    values_block: int
    values_token: int
    values_head: int
    tables: int
    tables_row: int
    out: int
    out_token: int
    out_head: int
    lse: int
    lse_token: int
    lse_head: int
    scale: float
    softcap: float
    """0: none."""
    slopes: int
    """Of ALiBi, (num_q_heads,) float32; 0: none."""
    sinks: int
    """(num_q_heads,) float32; 0: none."""
    rows: int
    """Query rows of all heads that an item has at the most."""
    records: int
    """Partial results: see `pagedkv.optimized.cpu.records`."""


class Item(NamedTuple):
    """A piece of the work: some query tokens, of requests whose tables begin alike, over a span of positions."""

    request: int
    """Whose table is read."""
    first_token: int
    end_token: int
    """Which of the tokens listed for items."""
    grid: int
    """Where tiles are counted from."""
    first: int
    end: int
    """Positions that any of the tokens sees."""
    first_head: int
    end_head: int
    """KV heads."""
    span: int
    """Which span of the request it is."""
