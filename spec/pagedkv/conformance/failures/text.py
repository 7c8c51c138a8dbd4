"""Texts and the numbers that count them: what has to change together when a token of a program goes.

Lengths are followed as the operations say, without a pool: a refused one is taken as carried out. That is near enough
for a proposal.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from pagedkv.spec import (
    Admit, Append, Batch, Commit, Evict, Fork, Free, Lookup, Operation, Permute, Pin, RequestId, Reserve, Token,
    Truncate, Unpin,
)  # fmt: skip
from pagedkv.spec.operations import rows_of

Program: TypeAlias = tuple[Operation, ...]


def known_lengths(program: Sequence[Operation]) -> Iterator[tuple[Operation, int]]:
    """Each operation, or row of a batch, and the length of its request before it (0: there is none)."""
    lengths: dict[RequestId, int] = {}
    for operation in program:
        for row in rows_of(operation):
            yield row, lengths.get(getattr(row, "request", None), 0)
            _follow(lengths, row)


def _follow(lengths: dict[RequestId, int], row: Operation) -> None:
    match row:
        case Admit(request, tokens):
            lengths.setdefault(request, len(tokens))
        case Append(request, tokens) if request in lengths:
            lengths[request] += len(tokens)
        case Truncate(request, length) if 0 < length <= lengths.get(request, 0):
            lengths[request] = length
        case Fork(parent, child) if parent in lengths:
            lengths.setdefault(child, lengths[parent])
        case Free(request):
            lengths.pop(request, None)


def cut(
    program: Program, *, at: int, count: int = 1, every: int = 0, request: RequestId | None = None, since: int = 0
) -> Program:
    """The program without `count` positions from `at` on, or in each stretch of `every` positions without the one at
    that offset: their tokens are gone, and they are counted no more.

    Of all texts, or of that of one request from the operation `since` on, and of its children.
    """

    def gone(position: int) -> bool:
        return at <= (position % every if every else position) < at + count

    family, result, rows = {request}, list[Operation](), iter(known_lengths(program))
    for place, operation in enumerate(program):
        kept: list[Any] = []
        for _ in rows_of(operation):
            row, length = next(rows)
            if request is None:
                kept += _cut_row(row, length, gone)
                continue
            named = place >= since and getattr(row, "request", getattr(row, "parent", None)) in family
            kept += _cut_row(row, length, gone) if named else [row]
            if named and isinstance(row, Fork):
                family.add(row.child)
            if named and isinstance(row, Free):
                family.discard(row.request)
        if isinstance(operation, Batch):
            kept = [replace(operation, rows=tuple(kept))] if kept else []
        result += kept
    return tuple(result)


def _cut_row(row: Operation, length: int, gone: Callable[[int], bool]) -> list[Operation]:
    """A row without the positions; nothing where no token is left."""
    start = length if isinstance(row, Append) else 0
    tokens: tuple[Token, ...] | None = getattr(row, "tokens", None)
    if tokens is not None:
        row = with_tokens(row, tuple(token for p, token in enumerate(tokens, start) if not gone(p)))
        if tokens and not row.tokens:  # type: ignore[union-attr]  # it has some
            return []
    number = number_of(row)
    if isinstance(row, Commit | Reserve | Truncate) or (isinstance(row, Admit) and row.reserve is not None):
        row = with_number(row, number - sum(map(gone, range(number))))
    return [row]


def number_of(row: Operation) -> int:
    """The number in an operation; 0: it has none. An admission without a limit has -1, so that it is the simplest."""
    match row:
        case Commit(_, number) | Reserve(_, number) | Truncate(_, number) | Evict(number) | Permute(number):
            return number
        case Admit(_, _, _, reserve):
            return -1 if reserve is None else reserve
        case _:
            return 0


def natural_number(row: Operation, length: int) -> int:
    """The number that asks for no explanation: all is computed, nothing more is reserved, one token rolled back."""
    match row:
        case Commit() | Reserve():
            return length
        case Truncate():
            return length - 1
        case Evict():
            return 1
        case Admit():
            return -1
        case _:
            return 0


def with_number(row: Operation, number: int) -> Operation:
    """The operation with another number."""
    match row:
        case Commit(request, _):
            return Commit(request, number)
        case Reserve(request, _):
            return Reserve(request, number)
        case Truncate(request, _):
            return Truncate(request, number)
        case Evict():
            return Evict(number)
        case Permute():
            return Permute(number)
        case Admit():
            return replace(row, reserve=None if number == -1 else number)
        case _:
            return row


def with_tokens(row: Operation, tokens: tuple[Token, ...]) -> Operation:
    """The operation with another text."""
    return replace(row, tokens=tokens) if isinstance(row, Admit | Append | Lookup | Pin | Unpin) else row
