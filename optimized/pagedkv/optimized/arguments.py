"""What callers may pass, checked before anything changes.

Every function returns the value in the form the arrays want, or raises `Misuse`, which names the argument, its value
and what is allowed.
"""

from collections.abc import Hashable, Sequence
from typing import Any, Final, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from pagedkv.spec.words import Misuse, check_id

Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
Integers: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]
Tokens: TypeAlias = Integers

MAX_INT32: Final = 2**31 - 1
"""The largest token id, block id and length: tables, lengths and tokens are int32, as kernels read them."""


def integer(argument: str, value: object, least: int, most: int | None = None) -> int:
    """A whole number in [least, most]; NumPy integers too, but no bool."""
    bound = f"an integer >= {least}" if most is None else f"an integer between {least} and {most}"
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise Misuse(argument, value, bound)
    if value < least or (most is not None and value > most):
        raise Misuse(argument, value, bound)
    return int(value)


def optional(argument: str, value: object, least: int, most: int) -> int | None:
    """The same, or None."""
    return None if value is None else integer(argument, value, least, most)


def hashable(argument: str, value: Hashable) -> Hashable:
    """The value itself, which must be hashable."""
    check_id(argument, value)
    return value


def _is_int32(values: object, least_count: int) -> TypeGuard[Int32]:
    return (
        isinstance(values, np.ndarray) and values.dtype == np.int32 and values.ndim == 1 and len(values) >= least_count
    )


def token_array(tokens: object, least_count: int = 1) -> Int32:
    """Tokens as (count,) int32: from a 1-D integer array, or from a sequence of ints."""
    if _is_int32(tokens, least_count) and np.maximum.reduce(tokens.view(np.uint32), initial=0) <= MAX_INT32:
        return tokens.copy()  # the usual case; as unsigned numbers, negative ones would be too large
    allowed = f"a sequence of at least {least_count} tokens, each an integer between 0 and {MAX_INT32}"
    if isinstance(tokens, np.ndarray):
        array = tokens
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise Misuse("tokens", tokens, f"{allowed}, or a 1-D integer array of them")
    else:
        if isinstance(tokens, (str, bytes)) or not isinstance(tokens, Sequence) or not set(map(type, tokens)) <= {int}:
            raise Misuse("tokens", tokens, allowed)
        try:
            array = np.array(tokens, dtype=np.int64)
        except OverflowError:
            raise Misuse("tokens", tokens, allowed) from None
    if len(array) < least_count or (len(array) and (array.min() < 0 or array.max() > MAX_INT32)):
        raise Misuse("tokens", tokens, allowed)
    return array.astype(np.int32)


def int_array(argument: str, values: object, count: int, least: int, most: int = 2**63 - 1) -> Int64:
    """`count` integers in [least, most], one a row of a batch, as (count,) int64."""
    if _is_int32(values, 1) and len(values) == count:
        low, high = np.minimum.reduce(values), np.maximum.reduce(values)
        if least <= low and high <= most:  # the usual case
            return values.astype(np.int64)
    allowed = f"{count} integers between {least} and {most}, one for each request"
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        raise Misuse(argument, values, allowed) from None
    if array.shape != (count,) or (count and array.dtype.kind not in "iu"):
        raise Misuse(argument, values, allowed)
    if count and (int(array.min()) < least or int(array.max()) > most):
        raise Misuse(argument, values, allowed)
    if isinstance(values, Sequence) and not {bool, np.bool_}.isdisjoint(map(type, values)):  # numbers to NumPy
        raise Misuse(argument, values, allowed)
    return array.astype(np.int64)


def last_of_each(values: Int32 | Int64, scratch: Int32) -> NDArray[np.bool_]:
    """Which of these numbers stand for the last time, (count,). `scratch` has a place for each possible number, and
    may hold anything.

    >>> last_of_each(np.array([3, 1, 3], np.int32), scratch=np.empty(4, np.int32))
    array([False,  True,  True])
    """
    order = counting(len(values))
    scratch[values] = order  # of equal indices the last is assigned
    last: NDArray[np.bool_] = scratch.take(values) == order
    return last


def counting(count: int) -> Int32:
    """0, 1, … count - 1 as (count,) int32, to read only; short ones are not made anew."""
    return _COUNTING[:count] if count <= len(_COUNTING) else np.arange(count, dtype=np.int32)


def ones(count: int) -> Int64:
    """1, 1, … as (count,) int64, to read only; short ones are not made anew."""
    return _ONES[:count] if count <= len(_ONES) else np.ones(count, np.int64)


_COUNTING: Final = np.arange(8192, dtype=np.int32)
_ONES: Final = np.ones(8192, np.int64)
_COUNTING.flags.writeable = _ONES.flags.writeable = False
