"""Drawing the state of a pool in the terminal, with what an operation changed marked by a star.

A request is a line: its lengths, then its block table. A block of the table is its physical number and its slots:
`#` a position whose KV is computed, `o` one whose KV is still to come, `.` an empty slot. The pool is one cell a
block: its number of references, `i` if the prefix index knows it (alone: idle), `h` if it is held, `.` if it is free.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields

from pagedkv.conformance.counted import counted
from pagedkv.spec import (
    HOLE, Batch, Block, Misuse, Operation, Outcome, Refused, Request, RequestId, State, available,
)  # fmt: skip

MAX_BLOCKS = 64
"""A larger pool is drawn by its changed blocks only."""
MAX_REQUESTS = 16
"""More requests are drawn by the changed ones only."""
MAX_SLOTS = 64
"""A larger block is drawn by how many slots it has of each kind."""
BLOCKS_A_LINE = 16
TOKENS_SHOWN = 6

Paint = Callable[[str], str]


def plain(text: str) -> str:
    """No colour."""
    return text


def bold(text: str) -> str:
    """For a terminal."""
    return f"\x1b[1m{text}\x1b[0m"


def operation_text(operation: Operation) -> str:
    """An operation in one line.

    >>> from pagedkv.spec import Admit
    >>> operation_text(Admit("a", tuple(range(8))))
    'admit request=a tokens=[0 1 2 3 4 5 ... 8 tokens]'
    """
    name = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(operation).__name__).lstrip("_")
    if isinstance(operation, Batch):
        return f"{name} of {len(operation.rows)}" + (f" step={operation.step}" if operation.step is not None else "")
    words = [name]
    for field in fields(operation):
        value = getattr(operation, field.name)
        if value is not None and value != field.default:
            words.append(f"{field.name}={_tokens(value) if field.name == 'tokens' else _word(value)}")
    return " ".join(words)


def _word(value: object) -> str:
    return f"[{' '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _tokens(tokens: tuple[int, ...]) -> str:
    if len(tokens) <= TOKENS_SHOWN:
        return _word(tuple(tokens))
    return f"[{' '.join(map(str, tokens[:TOKENS_SHOWN]))} ... {counted(len(tokens), 'tokens')}]"


def outcome_text(outcome: Outcome | Misuse) -> str:
    """What was answered, in a few words.

    >>> from pagedkv.spec import Ok
    >>> outcome_text(Ok(cached_tokens=4))
    'ok: 4 cached tokens'
    """
    if isinstance(outcome, Misuse):
        return f"misuse: {outcome}"
    if isinstance(outcome, Refused):
        return f"refused: {outcome.reason}"
    words = []
    if outcome.cached_tokens:
        words.append(counted(outcome.cached_tokens, "cached tokens"))
    if outcome.slots:
        first, last = outcome.slots[0], outcome.slots[-1]
        words.append(
            f"slot {first}" if len(outcome.slots) == 1 else f"{counted(len(outcome.slots), 'slots')} {first}..{last}"
        )
    words += [f"copy block {copy.source} to {copy.destination}" for copy in outcome.copies]
    words += [f"block {old} gave way to {new}" for old, new in outcome.remapped]
    if outcome.evicted:
        words.append(f"{outcome.evicted} evicted")
    return "ok" + (": " + ", ".join(words) if words else "")


def draw(before: State, after: State, paint: Paint = plain) -> Iterator[str]:
    """The lines that show the state after an operation; changes since `before` have a star and are painted."""
    names = [*after.requests, *(name for name in before.requests if name not in after.requests)]
    changed = [name for name in names if after.requests.get(name) != before.requests.get(name)]
    shown = names if len(names) <= MAX_REQUESTS else changed
    width = max((len(str(name)) for name in shown), default=0)
    for name in shown:
        mark = "*" if name in changed else " "
        line = f"{mark} {name!s:<{width}}  {_request(name, before, after, paint)}".rstrip()
        yield paint(line) if name not in before.requests or name not in after.requests else line
    if len(shown) < len(names):
        yield f"  {counted(len(names) - len(shown), 'more requests')}, unchanged"
    yield from _pool(before, after, paint)
    yield from _surroundings(after)


def _request(name: RequestId, before: State, after: State, paint: Paint) -> str:
    r, old = after.requests.get(name), before.requests.get(name)
    if r is None:
        return "gone"
    lengths = f"length {r.length} reserved {r.reserved} computed {r.computed}"
    if r.namespace != "":
        lengths += f" in {r.namespace}"
    if r.residency != "resident":
        return f"{lengths}  preempted, {'swapped out' if r.residency == 'swap' else 'to be recomputed'}"
    size = after.config.block_size
    entries = [_entry(r, i, size) for i in range(len(r.table))]
    for i in range(len(entries)):
        if old is not None and (i >= len(old.table) or _entry(old, i, size) != entries[i]):
            entries[i] = paint("*" + entries[i])
    return f"{lengths}  {' '.join(entries)}"


def _entry(r: Request, logical: int, size: int) -> str:
    if r.table[logical] == HOLE:
        return "hole"
    computed = min(max(r.computed - logical * size, 0), size)
    known = min(max(min(r.length, r.reserved) - logical * size, computed), size)
    kinds = [("#", computed), ("o", known - computed), (".", size - known)]
    if size > MAX_SLOTS:
        return f"{r.table[logical]}[{' '.join(f'{count}{kind}' for kind, count in kinds if count)}]"
    return f"{r.table[logical]}[{''.join(kind * count for kind, count in kinds)}]"


def _cell(state: State, block: Block) -> str:
    count = state.references.get(block, 0)
    use = str(count) if count else "h" if block in state.held else ""
    return use + ("i" if block in state.entries else "") or "."


def _pool(before: State, after: State, paint: Paint) -> Iterator[str]:
    count = after.config.num_blocks
    in_use = {block for s in (before, after) for uses in (s.references, s.held, s.entries) for block in uses}
    changed = [block for block in sorted(in_use) if _cell(after, block) != _cell(before, block)]
    if count > MAX_BLOCKS:
        shown = " ".join(f"{block}:{_cell(after, block)}" for block in changed[:MAX_BLOCKS])
        more = len(changed) - MAX_BLOCKS
        yield f"  pool, changed blocks: {shown or 'none'}{f' and {more} more' if more > 0 else ''}"
    else:
        cells = [_cell(after, block) for block in range(count)]
        for first in range(0, count, BLOCKS_A_LINE):
            line = range(first, min(first + BLOCKS_A_LINE, count))
            yield "  block " + " ".join(f"{block:>4}" for block in line)
            marked = (f"*{cells[block]}" if block in changed else cells[block] for block in line)
            yield "  pool  " + " ".join(paint(f"{m:>4}") if m[0] == "*" else f"{m:>4}" for m in marked)
    yield f"  {available(after)} of {counted(count, 'blocks')} available"


def _surroundings(state: State) -> Iterator[str]:
    for (namespace, tokens), stack in state.pins.items():
        where = f" in {namespace}" if namespace != "" else ""
        yield f"  pinned {counted(len(stack), 'times')}: {_tokens(tokens)}{where}, blocks {_word(stack[-1])}"
    if state.steps:
        yield f"  steps in flight: {' '.join(map(str, state.steps))}"
