"""Cases: what a launch of attention means, before any block is chosen.

A `Case` is a few small numbers. It determines the `Contents` (queries, keys and values of each request, position by
position), and a case with a placement determines a `Problem`. Two placements of the same contents must give the same
bits, so every relation of this kit is one case and two placements; and a failing case shrinks by making its numbers
smaller, which is what a report prints.
"""

import ast
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pagedkv.spec.attention_subject import DTYPES
from pagedkv.spec.words import Misuse, check_integer

FEATURES = ("causal_prefill", "non_causal", "window", "softcap", "alibi", "sinks", "value_dim")
"""Capabilities that change what a launch computes; the others change how."""

SHAPES = ("decode", "speculative", "prefill")
"""Classes of requests: one query row; 2 to `FEW` rows, as to verify drafts; more, a chunk of a prompt or all of it."""

FEW = 8

STYLES = ("normal", "large", "negative", "late", "one_huge", "equal", "denormal", "flipped", "saturated")
"""How `contents` fills keys and queries; "saturated" is for softcap and drives |logit / cap| past 88."""


@dataclass(frozen=True)
class Case:
    """One launch in small numbers. `lengths` and `query_lens` have one entry a request, in tokens.

    A request may have more rows than positions: the first rows then see nothing. `Misuse` if a number is out of range.
    """

    dtype: str = "float32"
    block_size: int = 4
    lengths: tuple[int, ...] = (5,)
    query_lens: tuple[int, ...] = (1,)
    num_kv_heads: int = 2
    group: int = 2
    """Query heads a KV head serves."""
    head_dim: int = 16
    value_dim: int | None = None
    """None: `head_dim`."""
    causal: bool = True
    window: int | None = None
    softcap: float = 0.0
    alibi: bool = False
    sinks: bool = False
    split_size: int | None = None
    """In tokens, a multiple of 16; None: the subject chooses."""
    style: str = "normal"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise Misuse("dtype", self.dtype, f"one of {', '.join(DTYPES)}")
        if self.style not in STYLES:
            raise Misuse("style", self.style, f"one of {', '.join(STYLES)}")
        for name in ("lengths", "query_lens"):
            if not isinstance(getattr(self, name), tuple) or not getattr(self, name):
                raise Misuse(name, getattr(self, name), "a tuple with one number a request, and a request")
            for number in getattr(self, name):
                check_integer(name, number, 0)
        if len(self.lengths) != len(self.query_lens):
            raise Misuse("query_lens", self.query_lens, f"as many numbers as lengths={self.lengths} has")
        for name in ("block_size", "num_kv_heads", "group", "head_dim"):
            check_integer(name, getattr(self, name), 1)
        for name in ("value_dim", "window", "split_size"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)
        check_integer("seed", self.seed, 0)
        for name in ("causal", "alibi", "sinks"):
            if not isinstance(getattr(self, name), bool):
                raise Misuse(name, getattr(self, name), "True or False")
        if not isinstance(self.softcap, int | float) or not 0 <= self.softcap < float("inf"):
            raise Misuse("softcap", self.softcap, "a finite number >= 0; 0: no cap")
        if (self.split_size or 0) % 16:
            raise Misuse("split_size", self.split_size, "a multiple of 16, or None")

    @property
    def num_q_heads(self) -> int:
        return self.num_kv_heads * self.group

    @property
    def dims(self) -> tuple[int, int]:
        """The last dimensions of keys and of values."""
        return self.head_dim, self.head_dim if self.value_dim is None else self.value_dim

    def shapes(self) -> list[str]:
        """The class of each query row of the launch, that of its request.

        >>> Case(lengths=(9, 20), query_lens=(1, 2)).shapes()
        ['decode', 'speculative', 'speculative']
        """
        return [SHAPES[(rows > 1) + (rows > FEW)] for rows in self.query_lens for _ in range(rows)]

    def describe(self) -> str:
        """The fields that differ from the defaults, on one line, which `case_of` reads.

        >>> Case(lengths=(9,), window=3).describe()
        'Case(lengths=(9,), window=3)'
        """
        changed = {name: value for name, value in vars(self).items() if value != getattr(DEFAULT, name)}
        return f"Case({', '.join(f'{name}={_written(value)}' for name, value in changed.items())})"

    def features(self) -> tuple[str, ...]:
        """The capabilities among `FEATURES` that a launch of this case needs."""
        several = any(rows > 1 for rows in self.query_lens)
        apart = self.dims[0] != self.dims[1]
        needed = (several, not self.causal, self.window is not None, self.softcap > 0, self.alibi, self.sinks, apart)
        return tuple(name for name, present in zip(FEATURES, needed, strict=True) if present)

    def sees(self, request: int, row: int) -> np.ndarray[Any, Any]:
        """Positions that a query row of a request sees, ascending: bottom-right aligned, window inclusive.

        Without causality a window reaches as far forward as back.

        >>> Case(lengths=(9,), query_lens=(2,), window=3).sees(0, 0)
        array([5, 6, 7])
        """
        length, rows = self.lengths[request], self.query_lens[request]
        position = length - rows + row
        last = position if self.causal else length - 1
        first = 0
        if self.window is not None:
            first, last = max(0, position - self.window + 1), min(last, position + self.window - 1)
        return np.arange(first, last + 1)


DEFAULT = Case()

PARTS = 16
"""Into which the requests of a case are cut to make it smaller, if there are more; so many, all alike, are written as a
product."""


def _written(value: Any) -> str:
    alike = isinstance(value, tuple) and len(value) > PARTS and len(set(value)) == 1
    return f"({value[0]},) * {len(value)}" if alike else repr(value)


def case_of(text: str) -> Case:
    """The case that a report prints: literals, and a tuple times a number, only; nothing else is evaluated. `Misuse` if
    it is none.

    >>> case_of("Case(lengths=(9,), window=3)").window
    3
    >>> case_of(Case(lengths=(2,) * 40, query_lens=(1,) * 40).describe()).lengths == (2,) * 40
    True
    """
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "Case" or call.args:
            raise ValueError("no Case(...)")
        return Case(**{str(word.arg): _read(word.value) for word in call.keywords})
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise Misuse("case", text, f"Case(name=value, ...) as a report prints it ({error})") from error


def _read(node: ast.expr) -> Any:
    """What `_written` has written."""
    match node:
        case ast.BinOp(ast.Tuple([one]), ast.Mult(), ast.Constant(int(times))) if times < 2**16:
            return (ast.literal_eval(one),) * times
    return ast.literal_eval(node)


def with_positions(case: Case) -> Case | None:
    """The case without the requests that bring more rows than they have positions; None if no row is left.

    It is the `fit` of a kernel whose lengths count the rows, so that there are no such requests.

    >>> print(with_positions(Case(lengths=(5, 2), query_lens=(1, 3))).describe())
    Case()
    """
    kept = [(n, m) for n, m in zip(case.lengths, case.query_lens, strict=True) if m <= n]
    if not any(rows for _, rows in kept):
        return None
    lengths, query_lens = zip(*kept, strict=True)
    return replace(case, lengths=lengths, query_lens=query_lens)


@dataclass(frozen=True)
class Contents:
    """What each request asks and holds, in logical order: tuples with one array a request."""

    queries: tuple[Any, ...]
    """(query rows, num_q_heads, head_dim)."""
    keys: tuple[Any, ...]
    """(length, num_kv_heads, head_dim)."""
    values: tuple[Any, ...]
    """(length, num_kv_heads, value_dim)."""
    scale: float
    softcap: float = 0.0
    alibi_slopes: Any = None
    sinks: Any = None


def storage(dtype: str) -> np.dtype[Any]:
    """The NumPy type that carries a dtype: bfloat16 travels as float32 of bfloat16 values."""
    return np.dtype(np.float16 if dtype == "float16" else np.float32)


def cast(array: Any, dtype: str) -> Any:
    """Round to the nearest value of `dtype`, ties to even, written out here and not taken from the code under test.

    >>> cast(np.float32([1 + 2**-8, 1 + 3 * 2**-8]), "bfloat16").tolist()
    [1.0, 1.015625]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.asarray(array)
        if dtype != "bfloat16":
            return array.astype(storage(dtype))
        single = array.astype(np.float32)
        bits = single.view(np.uint32).astype(np.uint64)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
        return np.where(np.isnan(single), single, rounded)


def max_finite(dtype: str) -> float:
    """The largest finite value of a dtype."""
    return {"float32": float(np.finfo(np.float32).max), "float16": 65504.0, "bfloat16": 2.0**128 * (1 - 2.0**-8)}[dtype]


def alibi_slopes(num_q_heads: int) -> Any:
    """Slopes 2^(-8 h / num_q_heads), h = 1, 2, …, float32 (Press et al., 2022, §3)."""
    return (2.0 ** (-8.0 * np.arange(1, num_q_heads + 1) / num_q_heads)).astype(np.float32)


def contents(case: Case) -> Contents:
    """The contents of a case, a pure function of its numbers.

    "large": logits up to ±1e4. "negative": all logits far below 0, where a maximum that starts at 0 loses everything.
    "late": they rise from about -2e4 at the first position to -120 at the last, so that each tile raises the maximum.
    "one_huge": one key outweighs all. "equal": all keys equal. "denormal": keys and half of the values below the
    smallest normal. "flipped": a negative scale. "saturated": logits past 88 caps, where exp of the naive tanh
    overflows.
    """
    rng = np.random.default_rng((case.seed, 11))
    key_size, value_size = ((case.num_kv_heads, dim) for dim in case.dims)
    queries = [rng.standard_normal((rows, case.num_q_heads, case.head_dim)) for rows in case.query_lens]
    keys = [rng.standard_normal((length, *key_size)) for length in case.lengths]
    values = [rng.standard_normal((length, *value_size)) for length in case.lengths]
    scale = float(np.float32(case.head_dim**-0.5))
    for query, key, value in zip(queries, keys, values, strict=True):
        _restyle(case, rng, query, key, value, scale)
    return Contents(
        queries=tuple(cast(query, case.dtype) for query in queries),
        keys=tuple(cast(key, case.dtype) for key in keys),
        values=tuple(cast(value, case.dtype) for value in values),
        scale=-scale if case.style == "flipped" else scale,
        softcap=case.softcap,
        alibi_slopes=alibi_slopes(case.num_q_heads) if case.alibi else None,
        sinks=_sinks(case, rng) if case.sinks else None,
    )


def _sinks(case: Case, rng: np.random.Generator) -> Any:
    """(num_q_heads,) float32; in the style "large" some dwarf all logits and some vanish beside them."""
    sinks = rng.standard_normal(case.num_q_heads).astype(np.float32)
    return sinks * 2e4 if case.style == "large" else sinks


def _restyle(case: Case, rng: np.random.Generator, query: Any, key: Any, value: Any, scale: float) -> None:
    """Change one request's arrays in place to the case's style."""
    if len(key) == 0:
        return
    if case.style == "large":
        query *= 1e4 / (scale * case.head_dim)
    elif case.style == "negative":
        query[...] = np.abs(query) * 400.0
        key[...] = -np.abs(key) - 0.1
    elif case.style == "late":
        query[...] = 60.0
        key[...] = -(np.geomspace(160.0, 1.0, len(key)) * 2.0 / (scale * case.head_dim))[:, None, None]
    elif case.style == "saturated":
        query *= 100.0 * max(case.softcap, 1.0) / scale / np.sqrt(case.head_dim)
    elif case.style == "one_huge":
        key[rng.integers(len(key))] *= 300.0
    elif case.style == "equal":
        key[:] = key[0]
    elif case.style == "denormal":
        tiny = 2.0**-20 if case.dtype == "float16" else 2.0**-133
        key *= tiny
        value[::2] *= tiny
