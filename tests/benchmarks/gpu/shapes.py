"""The shape of one launch, and what it costs at the least: counted from lengths alone, whoever computes it."""

from dataclasses import dataclass

from pagedkv.spec.words import ceil_div

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Shape:
    """One causal launch over a paged cache. `lengths` and `rows` have one entry a request, in tokens."""

    lengths: tuple[int, ...]
    """Positions in the cache, the query rows included."""
    rows: tuple[int, ...]
    """Query rows, the last positions of the request; 1 each is decode."""
    num_kv_heads: int = 8
    group: int = 4
    """Query heads a KV head."""
    head_dim: int = 128
    block_size: int = 16
    dtype: str = "bfloat16"

    @property
    def num_q_heads(self) -> int:
        return self.num_kv_heads * self.group

    @property
    def total_rows(self) -> int:
        return sum(self.rows)

    @property
    def is_decode(self) -> bool:
        return all(rows == 1 for rows in self.rows)

    @property
    def num_blocks(self) -> int:
        """Blocks that the tables name, all distinct."""
        return sum(ceil_div(length, self.block_size) for length in self.lengths)

    @property
    def cache_bytes(self) -> int:
        """Both caches, whole blocks."""
        return 2 * self.num_blocks * self.block_size * self.num_kv_heads * self.head_dim * ITEM_BYTES[self.dtype]

    @property
    def least_bytes(self) -> int:
        """What any kernel moves: keys and values of all positions once, the query read, the output written."""
        cached = 2 * sum(self.lengths) * self.num_kv_heads
        return (cached + 2 * self.total_rows * self.num_q_heads) * self.head_dim * ITEM_BYTES[self.dtype]

    @property
    def seen_pairs(self) -> int:
        """Pairs (row, position it sees): row i of m at length n sees n - m + i + 1 positions.

        >>> Shape(lengths=(3, 5), rows=(3, 1)).seen_pairs
        11
        """
        return sum(m * (n - m) + m * (m + 1) // 2 for n, m in zip(self.lengths, self.rows, strict=True))

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each pair, query head and dimension, in q·k and again in p·v."""
        return 4 * self.seen_pairs * self.num_q_heads * self.head_dim
