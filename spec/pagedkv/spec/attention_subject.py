"""Chapter 21. Attention subjects: a kernel, held against the specification without an allocator.

A `Problem` is one launch with all its options, in NumPy. A subject declares what it can do, answers with outputs and
log-sum-exps, and states how it rounds (`RoundingModel`), from which the bound on its error is derived.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral
from typing import Any, Final, Protocol

from pagedkv.spec.misuse import Misuse

DTYPES: Final = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class AttentionCapabilities:
    """What an attention implementation declares. Raises `Misuse` for a dtype that there is no law for.

    >>> AttentionCapabilities(dtypes=("fp8",))
    Traceback (most recent call last):
    pagedkv.spec.misuse.Misuse: dtypes=('fp8',) is not allowed: expected a tuple of some of float32, float16, bfloat16
    """

    dtypes: tuple[str, ...] = ("float32",)
    """Of query, keys and values as stored, some of `DTYPES`."""
    causal_prefill: bool = False
    """Several query rows a request, bottom-right aligned; without it, one row (decode)."""
    non_causal: bool = False
    window: bool = False
    softcap: bool = False
    alibi: bool = False
    sinks: bool = False
    value_dim: bool = False
    """Values whose last dimension differs from that of keys."""
    returns_lse: bool = False
    writes: bool = False
    """`write_kv` and `copy_blocks`."""
    strided: bool = False
    """Caches with any strides and a contiguous last dimension."""
    padded: bool = False
    """Query rows past those of the last request, for a step of a fixed shape: they see nothing."""
    batch_invariant: bool = False
    split_invariant: bool = False
    """The bits do not depend on the split size."""

    def __post_init__(self) -> None:
        known = isinstance(self.dtypes, tuple) and self.dtypes and all(dtype in DTYPES for dtype in self.dtypes)
        if not known or len(set(self.dtypes)) < len(self.dtypes):
            raise Misuse("dtypes", self.dtypes, f"a tuple of some of {', '.join(DTYPES)}")
        for name in (each.name for each in fields(self) if each.name != "dtypes"):
            if type(getattr(self, name)) is not bool:
                raise Misuse(name, getattr(self, name), "True or False")


@dataclass(frozen=True)
class RoundingModel:
    """What the rounding bound must know of an implementation (`pagedkv.spec.bound`).

    An online softmax over tiles of T tokens: `tile=T`, `num_tiles=ceil(length / T)`, for each tile rescales the sums
    before it. One that cuts a request into splits and merges them adds the splits, and one for the merge. All in one
    go: `tile=length`, `num_tiles=1`. Raises `Misuse` for a number of tokens or tiles that is none, and for a relative
    error that is none.
    """

    tile: int
    """Tokens summed in one go, at the most."""
    num_tiles: int
    """Tiles and merge levels a token's weight passes through, at the most."""
    u_accumulate: float = 2.0**-24
    u_exp: float = 2.0**-22
    """Relative error of one exponential."""
    u_weights: float = 0.0
    """Rounding of the softmax weights before they meet V; 0: they stay in the accumulator's format."""
    lse_merge: bool = False
    """Partial results are merged through their log-sum-exp."""

    def __post_init__(self) -> None:
        for name in ("tile", "num_tiles"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or not 0 <= int(value) < 2**31:
                raise Misuse(name, value, "an integer from 0 to 2**31 - 1")
        for name in ("u_accumulate", "u_exp", "u_weights"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise Misuse(name, getattr(self, name), "a relative error, finite and >= 0")


@dataclass(frozen=True)
class Problem:
    """One launch of attention over a paged cache. Arrays are NumPy; bfloat16 travels as float32 of bfloat16 values.

    `query` (total_q, num_q_heads, head_dim); `key_cache` (num_blocks, block_size, num_kv_heads, head_dim),
    `value_cache` (num_blocks, block_size, num_kv_heads, value_dim); `block_tables` (num_requests, max_blocks) int32;
    `seq_lens` (num_requests,) int32, the rows of the query included; `query_lens` (num_requests,) int32,
    in total `total_q`, or less where the subject declares `padded`.
    """

    query: Any
    key_cache: Any
    value_cache: Any
    block_tables: Any
    seq_lens: Any
    query_lens: Any
    scale: float
    dtype: str = "float32"
    causal: bool = True
    window: int | None = None
    """Positions that a row sees, itself included; None: all."""
    softcap: float = 0.0
    alibi_slopes: Any = None
    """(num_q_heads,) float32 or None."""
    sinks: Any = None
    """(num_q_heads,) float32 or None."""
    split_size: int | None = None
    options: Mapping[str, Hashable] = field(default_factory=dict)


class AttentionSubject(Protocol):
    """An attention implementation under test.

    One that is not made for every case that its capabilities allow may have a method `fit(case)`, which gives the part
    of a case that it is made for, or None; and `shapes`, a sequence of mappings such as `{"block_size": 16, "head_dim":
    64}`: the shapes that it is made for, taken in turns.
    """

    @property
    def name(self) -> str: ...
    @property
    def capabilities(self) -> AttentionCapabilities: ...
    def rounding(self, problem: Problem) -> RoundingModel: ...
    def attend(self, problem: Problem) -> tuple[Any, Any]:
        """(output (total_q, num_q_heads, value_dim), lse (total_q, num_q_heads) float32 or None), as NumPy arrays.

        The arrays of the problem are read only. What is returned may be overwritten by the next call.
        """
        ...

    def write_kv(self, key: Any, value: Any, key_cache: Any, value_cache: Any, slot_mapping: Any, dtype: str) -> None:
        """Write rows at their slots, in place; slots < 0 are skipped.

        `key` (num_tokens, num_kv_heads, head_dim), `value` (num_tokens, num_kv_heads, value_dim) float32;
        `slot_mapping` (num_tokens,) int64.
        """
        ...

    def copy_blocks(self, caches: Sequence[Any], pairs: Any, dtype: str) -> None:
        """Copy whole blocks in place, `pairs` (num_pairs, 2) of source, destination, in each cache."""
        ...
