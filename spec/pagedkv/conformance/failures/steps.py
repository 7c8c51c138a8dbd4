"""The single steps of shrinking: every way to make a program, or its pool, simpler by one thing.

A step may take along what hangs on the one thing: the numbers that count a token that goes, the blocks that a request
needed, the operation that brought a request which another one stands in for. It is only ever a proposal, which the
subject then confirms or not, so nothing here has to be right; it has to come often enough upon what can go. The order
is from coarse to fine, and `cost` says what counts as simpler: every step that is taken lowers it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Final, TypeAlias

from pagedkv.conformance.failures.text import (
    Program, cut, known_lengths, natural_number, number_of, with_number, with_tokens,
)  # fmt: skip
from pagedkv.spec import (
    Admit, Append, Batch, BeginStep, Commit, Config, EndStep, Fork, Lookup, Operation, Pin, Preempt, RequestId, Unpin,
    ceil_div,
)  # fmt: skip
from pagedkv.spec.operations import requests_of, rows_of
from pagedkv.spec.words import Namespace

Candidate: TypeAlias = tuple[Config, Program]
Cost: TypeAlias = tuple[int, ...]

LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
PAIRS_UP_TO: Final = 12
"""Of programs no longer than this, any two operations are left out together, too."""
SIZES: Final = (
    "num_blocks", "block_size", "sliding_window", "sink_tokens", "max_rollback", "swap_blocks", "max_requests",
)  # fmt: skip
OPTIONS: Final[tuple[Mapping[str, Any], ...]] = (
    {"sliding_window": None, "sink_tokens": 0, "max_rollback": 0}, {"sink_tokens": 0}, {"max_rollback": 0},
    {"swap_blocks": 0}, {"max_requests": None}, {"overlapped_steps": False}, {"prefix_cache": False},
)  # fmt: skip
"""How each option is turned off."""


def cost(config: Config, program: Sequence[Operation]) -> Cost:
    """What there is to read, the weightiest first: operations (a batch is one more than its rows), tokens, options,
    sizes of the pool, requests, names out of order, namespaces, numbers that are not the natural ones, token values."""
    rows = list(all_rows(program))
    batches = sum(isinstance(operation, Batch) for operation in program)
    texts = [getattr(row, "tokens", ()) for row in rows]
    spaces = [row.namespace for row in rows if isinstance(row, Admit | Lookup | Pin | Unpin) and row.namespace]
    return (
        batches + len(rows),
        sum(map(len, texts)),
        sum(any(getattr(config, name) != off for name, off in option.items()) for option in OPTIONS),
        sum(getattr(config, name) or 0 for name in SIZES),
        len({name for row in rows for name in requests_of(row)}),
        int(_renamed(program) != tuple(program)),
        len(spaces) + len(set(spaces)),
        sum(abs(number_of(row) - natural_number(row, known)) for row, known in known_lengths(program)),
        sum(abs(token) for text in texts for token in text),
        sum(isinstance(row, Preempt) and row.mode != "recompute" for row in rows),
        sum(isinstance(operation, Batch) and operation.step is not None for operation in program),
    )


def all_rows(program: Sequence[Operation]) -> Iterator[Operation]:
    """Operations, and of batches the rows."""
    return (row for operation in program for row in rows_of(operation))


def single_steps(config: Config, program: Program) -> Iterator[Candidate]:
    """Every program, with its pool, that is simpler in one respect."""
    for steps in (_operations, _requests, _pool, _texts, _growth, _values):
        yield from steps(config, program)


def _operations(config: Config, program: Program) -> Iterator[Candidate]:
    """Without an operation (and the blocks that it needed), without a row, two appends as one."""
    for i in reversed(range(len(program))):
        rest = (*program[:i], *program[i + 1 :])
        yield config, rest
        pools = range(max(1, config.num_blocks - 3), config.num_blocks)
        yield from ((replace(config, num_blocks=num_blocks), rest) for num_blocks in pools)
        if isinstance(batch := program[i], Batch):
            yield config, (*program[:i], *batch.rows, *program[i + 1 :])
            fewer = [batch.rows[:j] + batch.rows[j + 1 :] for j in range(len(batch.rows))]
            yield from ((config, _put(program, i, row)) for row in batch.rows)
            yield from ((config, _put(program, i, replace(batch, rows=rows))) for rows in fewer if rows)
        if isinstance(more := program[i], Append):
            for j in range(i):
                if isinstance(text := program[j], Admit | Append) and text.request == more.request:
                    joined = with_tokens(text, text.tokens + more.tokens)
                    yield config, (*program[:j], joined, *program[j + 1 : i], *program[i + 1 :])
    if len(program) <= PAIRS_UP_TO:
        for i, j in combinations(range(len(program)), 2):
            yield config, (*program[:i], *program[i + 1 : j], *program[j + 1 :])


def _requests(config: Config, program: Program) -> Iterator[Candidate]:
    """Without a request and what it took, or with one request in the place of another."""
    names = list(dict.fromkeys(name for row in all_rows(program) for name in requests_of(row)))
    for name in names:
        rest = _without(program, name)
        tokens = [len(row.tokens) for row in all_rows(program) if isinstance(row, Admit) and row.request == name]
        for blocks in range(ceil_div(max(tokens, default=0), config.block_size) + 1):
            yield replace(config, num_blocks=max(1, config.num_blocks - blocks)), rest
        if config.max_requests is not None and config.max_requests > 1:
            yield replace(config, max_requests=config.max_requests - 1), rest
    for kept, gone in combinations(names, 2):
        yield config, _with_names(program, {gone: kept})
        yield config, _with_names(_unbrought(program, gone), {gone: kept})
    for i, fork in enumerate(program):  # the parent goes on in the place of the child, instead of what it did itself
        if isinstance(fork, Fork):
            later = tuple(row for row in program[i + 1 :] if fork.parent not in requests_of(row))
            yield config, (*program[:i], *_with_names(later, {fork.child: fork.parent}))


def _without(program: Program, name: RequestId) -> Program:
    return each_row(program, lambda row: None if name in requests_of(row) else row)


def _unbrought(program: Program, name: RequestId) -> Program:
    """Without what brings this request."""

    def brings(row: Operation) -> bool:
        return (isinstance(row, Admit) and row.request == name) or (isinstance(row, Fork) and row.child == name)

    return each_row(program, lambda row: None if brings(row) else row)


def _pool(config: Config, program: Program) -> Iterator[Candidate]:
    """Fewer blocks, smaller blocks (with texts that fill as many of them), options turned off or smaller."""
    if config.num_blocks > 1:
        yield replace(config, num_blocks=config.num_blocks // 2), program
        yield replace(config, num_blocks=config.num_blocks - 1), program
    for off in OPTIONS:
        if (smaller := replace(config, **off)) != config:
            yield smaller, program
    bs, window = config.block_size, config.sliding_window
    if bs > 1:
        for offset in (bs - 1, 0):
            shorter = cut(program, every=bs, at=offset)
            yield replace(config, block_size=bs - 1), shorter
            if window is not None:
                yield replace(config, block_size=bs - 1, sliding_window=max(1, window - window // bs)), shorter
        yield replace(config, block_size=bs - 1), program
    least = dict.fromkeys(SIZES[2:], 0) | {"sliding_window": 1, "max_requests": 1}
    for name in SIZES[2:]:
        if (size := getattr(config, name)) is not None and size > least[name]:
            yield replace(config, **{name: size - 1}), program


def _texts(config: Config, program: Program) -> Iterator[Candidate]:
    """Without the second half of a text, a block or a position of every text, or a token of one text."""
    known = [*known_lengths(program)]
    longest = max((length + len(getattr(row, "tokens", ())) for row, length in known), default=0)
    for i, operation in enumerate(program):
        for j, row in enumerate(rows_of(operation)):
            if len(tokens := getattr(row, "tokens", ())) > 2:
                yield config, _put_row(program, i, j, with_tokens(row, tokens[: len(tokens) // 2]))
    bs, fewer = config.block_size, replace(config, num_blocks=max(1, config.num_blocks - 1))
    for start in range(0, longest if bs > 1 else 0, bs):
        shorter = cut(program, at=start, count=bs)
        yield fewer, shorter
        yield config, shorter
    for position in reversed(range(longest)):
        shorter = cut(program, at=position)
        yield config, shorter
        if config.sliding_window is not None and config.sliding_window > 1:
            yield replace(config, sliding_window=config.sliding_window - 1), shorter
    starts = (start for _, start in known)
    for i, operation in enumerate(program):
        for j, row in enumerate(rows_of(operation)):
            start = next(starts)
            tokens = getattr(row, "tokens", ())
            for k in reversed(range(len(tokens))):
                if isinstance(row, Admit | Append):
                    position = k if isinstance(row, Admit) else start + k
                    yield config, cut(program, at=position, request=row.request, since=i)
                yield config, _put_row(program, i, j, with_tokens(row, tokens[:k] + tokens[k + 1 :]))


def _growth(config: Config, program: Program) -> Iterator[Candidate]:
    """Without an append and its commit, and with texts that are shorter by a position: a text that ended in the middle
    of a block by growing there may as well have begun there."""
    longest = max((length + len(getattr(row, "tokens", ())) for row, length in known_lengths(program)), default=0)
    for i, operation in enumerate(program):
        if isinstance(operation, Append):
            after = (j for j in range(i + 1, len(program)) if getattr(program[j], "request", None) == operation.request)
            gone = {i, next((j for j in after if isinstance(program[j], Commit)), i)}
            rest = tuple(row for j, row in enumerate(program) if j not in gone)
            yield from ((config, cut(rest, at=position)) for position in range(longest))


def _values(config: Config, program: Program) -> Iterator[Candidate]:
    """Names in order, one namespace, natural numbers, tokens 0, 1, 2, …"""
    yield config, _renamed(program)
    spaces = dict.fromkeys(row.namespace for row in all_rows(program) if hasattr(row, "namespace"))
    for old in spaces:
        for new in dict.fromkeys(("", *spaces)):
            yield config, _moved(program, old, new)
    values = list(dict.fromkeys(token for row in all_rows(program) for token in getattr(row, "tokens", ())))
    yield config, _with_values(program, {value: i for i, value in enumerate(values)})
    for value in values:
        less = [other for other in dict.fromkeys((0, *values)) if abs(other) < abs(value)]
        yield from ((config, _with_values(program, {value: other})) for other in less)
    known = iter(known_lengths(program))
    for i, operation in enumerate(program):
        if isinstance(operation, Batch) and operation.step is not None:
            yield config, _put(program, i, replace(operation, step=None))
        for j, row in enumerate(rows_of(operation)):
            natural = natural_number(row, next(known)[1])
            yield from ((config, _put_row(program, i, j, simpler)) for simpler in _simpler_values(row, natural))


def _simpler_values(row: Operation, natural: int) -> Iterator[Operation]:
    if isinstance(row, Preempt) and row.mode != "recompute":
        yield Preempt(row.request)
    if getattr(row, "namespace", ""):
        yield from _moved((row,), row.namespace, "")  # type: ignore[union-attr]  # it has one
    number = number_of(row)
    toward = number - 1 if number > natural else number + 1
    for n in dict.fromkeys((natural, natural + 1, natural - 1, (natural + number) // 2, toward)):
        if abs(n - natural) < abs(number - natural):
            yield with_number(row, n)
    tokens = getattr(row, "tokens", ())
    if any(tokens):
        yield with_tokens(row, (0,) * len(tokens))
        yield from (with_tokens(row, (*tokens[:k], 0, *tokens[k + 1 :])) for k, token in enumerate(tokens) if token)


def each_row(program: Program, change: Callable[[Operation], Operation | None]) -> Program:
    """Every operation and row as `change` makes it, or without it where that is None."""
    changed: list[Operation] = []
    for operation in program:
        rows: list[Any] = [new for row in rows_of(operation) if (new := change(row)) is not None]
        if isinstance(operation, Batch):
            changed += [replace(operation, rows=tuple(rows))] if rows else []
        else:
            changed += rows
    return tuple(changed)


def _put(program: Program, i: int, operation: Operation) -> Program:
    return (*program[:i], operation, *program[i + 1 :])


def _put_row(program: Program, i: int, j: int, row: Operation) -> Program:
    operation = program[i]
    if not isinstance(operation, Batch):
        return _put(program, i, row)
    rows: tuple[Any, ...] = (*operation.rows[:j], row, *operation.rows[j + 1 :])
    return _put(program, i, replace(operation, rows=rows))


def _renamed(program: Sequence[Operation]) -> Program:
    """Requests called a, b, c, … and steps s0, s1, … in the order in which they appear."""
    names = dict.fromkeys(name for row in all_rows(program) for name in requests_of(row))
    steps = dict.fromkeys(row.step for row in program if isinstance(row, BeginStep | EndStep))
    new = {name: LETTERS[i] if i < len(LETTERS) else f"r{i}" for i, name in enumerate(names)}
    step = {name: f"s{i}" for i, name in enumerate(steps)}
    renamed = _with_names(tuple(program), new)
    return tuple(replace(o, step=step[o.step]) if isinstance(o, BeginStep | EndStep) else o for o in renamed)


def _with_names(program: Program, new: Mapping[RequestId, RequestId]) -> Program:
    def named(row: Any) -> Operation:
        fields = [name for name in ("parent", "child", "request") if hasattr(row, name)]
        renamed: Operation = replace(row, **{name: new.get(getattr(row, name), getattr(row, name)) for name in fields})
        return renamed

    return each_row(program, named)


def _moved(program: Program, old: Namespace, new: Namespace) -> Program:
    """From one namespace to another one."""

    def moved(row: Operation) -> Operation:
        if isinstance(row, Admit | Lookup | Pin | Unpin) and row.namespace == old:
            return replace(row, namespace=new)
        return row

    return each_row(program, moved)


def _with_values(program: Program, new: dict[int, int]) -> Program:
    def changed(row: Operation) -> Operation:
        tokens = getattr(row, "tokens", None)
        return row if tokens is None else with_tokens(row, tuple(new.get(token, token) for token in tokens))

    return each_row(program, changed)
