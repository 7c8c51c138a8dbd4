"""Checks of arguments, made before anything changes, so that misuse leaves a pool as it was."""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from pagedkv.spec.words import Misuse, Token

T = TypeVar("T")

MAX_TOKEN: Final = 2**31 - 1
"""The largest token: kernels read tokens as int32."""


def integer(argument: str, value: object, least: int, most: int | None = None) -> int:
    """`value` as an int in `least..most`, or `Misuse`. A bool is not a number here."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value and (most is None or value <= most):
        return value
    raise Misuse(argument, value, f"an integer >= {least}" if most is None else f"an integer in {least}..{most}")


def as_tuple(argument: str, value: Iterable[T], allowed: str) -> tuple[T, ...]:
    """The elements of `value`, or `Misuse` if it has none to give."""
    try:
        return tuple(value)
    except TypeError:
        raise Misuse(argument, value, allowed) from None


def token_path(argument: str, value: Sequence[Token], least: int = 0) -> tuple[Token, ...]:
    """`value` as a tuple of at least `least` tokens, or `Misuse` naming the first that is none."""
    tokens = as_tuple(argument, value, f"a sequence of tokens (integers in 0..{MAX_TOKEN})")
    if len(tokens) < least:
        raise Misuse(argument, value, f"at least {least} token")
    for position, token in enumerate(tokens):
        integer(f"{argument}[{position}]", token, 0, MAX_TOKEN)
    return tokens
