"""What callers may pass, checked before anything changes.

Every function returns the value in the form the arrays want, or raises `Misuse`, which names the argument, its value
and what is allowed.
"""

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from pagedkv.optimized.loops import calls
from pagedkv.optimized.loops.arrays import MAX_INT32, Int32, Int64
from pagedkv.spec.words import Misuse, check_id

Integers: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]
Tokens: TypeAlias = Integers


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


def flag(argument: str, value: object) -> bool:
    """True or False, and nothing that only counts as such."""
    if not isinstance(value, bool):
        raise Misuse(argument, value, "True or False")
    return value


def hashable(argument: str, value: Hashable) -> Hashable:
    """The value itself, which must be hashable."""
    check_id(argument, value)
    return value


def _is_int32(values: object, least_count: int) -> TypeGuard[Int32]:
    return type(values) is np.ndarray and values.dtype == np.int32 and values.ndim == 1 and len(values) >= least_count


def token_array(tokens: object, least_count: int = 1) -> Int32:
    """Tokens as (count,) int32, a copy: from a 1-D integer array, or from a sequence of ints."""
    if _is_int32(tokens, least_count):
        array = tokens.copy()  # also so that loops get arrays of one kind only, whatever the caller has
        if calls.are_tokens(array):  # the usual case
            return array
    allowed = f"a sequence of tokens, at least {least_count}, each an integer between 0 and {MAX_INT32}"
    if isinstance(tokens, (np.ndarray, memoryview)):
        given = plain_array("tokens", tokens, allowed)
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise Misuse("tokens", tokens, f"{allowed}, or a 1-D integer array of them")
        if len(given) and (given.min() < 0 or given.max() > MAX_INT32):
            raise Misuse("tokens", tokens, allowed)
        array = given.astype(np.int32)
    else:
        if isinstance(tokens, (str, bytes, bytearray)) or not isinstance(tokens, Sequence):
            raise Misuse("tokens", tokens, allowed)
        if not all(kind is int or issubclass(kind, np.integer) for kind in set(map(type, tokens))):
            raise Misuse("tokens", tokens, allowed)
        try:
            array = np.fromiter(tokens, np.int32, len(tokens))
        except OverflowError:
            raise Misuse("tokens", tokens, allowed) from None
    if len(array) < least_count or not calls.are_tokens(array):
        raise Misuse("tokens", tokens, allowed)
    return array


def plain_array(argument: str, values: "NDArray[Any] | memoryview", allowed: str) -> NDArray[Any]:
    """An array as NumPy makes them, not of a subclass; one that hides some of its values is none."""
    if isinstance(values, np.ma.MaskedArray):
        raise Misuse(argument, values, f"{allowed}, none of them masked")
    return np.asarray(values)


def int_array(argument: str, values: object, count: int, least: int, most: int = 2**63 - 1) -> Int64:
    """`count` integers in [least, most], one a row of a batch, as (count,) int64."""
    if _is_int32(values, 1) and len(values) == count:
        usual = values.astype(np.int64)
        if calls.are_within(usual, least, most):
            return usual
    allowed = f"{count} integers between {least} and {most}, one for each request"
    try:
        array = plain_array(argument, values, allowed)  # type: ignore[arg-type]  # whatever it is, NumPy may take it
    except (ValueError, OverflowError):
        raise Misuse(argument, values, allowed) from None
    if array.shape != (count,) or (count and array.dtype.kind not in "iu"):
        raise Misuse(argument, values, allowed)
    if count and (int(array.min()) < least or int(array.max()) > most):
        raise Misuse(argument, values, allowed)
    if isinstance(values, Sequence) and not {bool, np.bool_}.isdisjoint(map(type, values)):  # numbers to NumPy
        raise Misuse(argument, values, allowed)
    return array.astype(np.int64)
