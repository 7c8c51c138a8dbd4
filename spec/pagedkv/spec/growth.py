"""Chapter 8. Growth: reserve, append, commit.

Blocks are taken as text grows, never ahead of it (paper §4.3). A block that several own is never written: the writer
copies it first (§4.4, copy-on-write). Slots are given by admit, reserve and append, and the KV of a position counts
as computed once `commit` says so.
"""

from dataclasses import replace

from pagedkv.spec.blocks import CANONICAL, Choices, acquire, drop_entry, refusal, release, take
from pagedkv.spec.prefix import publish, publish_scheduled
from pagedkv.spec.state import Request, State, check_tokens, operation, resident
from pagedkv.spec.window import release_dead
from pagedkv.spec.words import Copy, Misuse, Ok, Outcome, Refused, RequestId, Slot, Token, ceil_div


@operation
def reserve(state: State, request: RequestId, length: int, choices: Choices = CANONICAL) -> Outcome:
    """Slots for the positions up to `length`: the next chunk of a prefill, or lookahead for drafts."""
    r = resident(state, request)
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise Misuse("length", length, "an integer >= 1")
    return grow(state, request, r, min(r.reserved, r.length), length, choices)


@operation
def append(state: State, request: RequestId, tokens: tuple[Token, ...], choices: Choices = CANONICAL) -> Outcome:
    """Extend a request by at least one token, and give the new positions slots.

    >>> from pagedkv.spec import Config, admit
    >>> s, _ = admit(State(Config(num_blocks=4, block_size=4)), "a", (1, 2, 3, 4))
    >>> s, outcome = append(s, "a", (5,))  # the last block is full: the fifth position needs a second one
    >>> s.requests["a"].table, outcome.slots
    ((0, 1), (4,))
    """
    r = resident(state, request)
    check_tokens(tokens)
    longer = replace(r, tokens=r.tokens + tokens)
    outcome = grow(state, request, longer, min(r.reserved, r.length), longer.length, choices)
    if isinstance(outcome, Refused):
        return outcome
    return replace(outcome, slots=slots(state, request, r.length, longer.length))


def grow(state: State, request: RequestId, r: Request, start: int, end: int, choices: Choices) -> Ok | Refused:
    """Make the positions start..end-1 writable: fresh blocks past the table's end, copy-on-write within it.

    A block with another owner (a table or a pin) is copied, and costs one. A block of which this request is the only
    owner is written in place; if it was indexed, its entry goes, for it will no longer hold what the index says.
    """
    if end <= start:
        return Ok()
    bs, table, copies = state.config.block_size, list(r.table), []
    rewritten = range(start // bs, min(len(table), ceil_div(end, bs)))
    copied = [i for i in rewritten if state.references[table[i]] > 1]
    fresh = range(len(table), ceil_div(end, bs))
    if refused := refusal(state, len(fresh) + len(copied), ceil_div(end, bs) - r.holes):
        return refused
    for i in rewritten:
        kept = state.contents[table[i]][: max(0, start - i * bs)]
        if i in copied:
            copies.append(Copy(table[i], take(state, request, i, choices)))
            release(state, table[i])
            table[i] = copies[-1].destination
        else:
            drop_entry(state, table[i])
        state.contents[table[i]] = kept
    table += [take(state, request, i, choices) for i in fresh]
    state.takings += bool(copies or fresh)
    state.requests[request] = replace(r, table=tuple(table), reserved=max(r.reserved, end))
    publish_scheduled(state, request, start)
    return Ok(slots=slots(state, request, start, end), copies=tuple(copies))


@operation
def commit(state: State, request: RequestId, computed: int, choices: Choices = CANONICAL) -> Outcome:
    """The KV of the positions below `computed` is written. Never goes back, and never passes what is reserved.

    Full blocks enter the index; with a sliding window, blocks that hold only dead positions are released.
    """
    r = resident(state, request)
    last = min(r.reserved, r.length)
    if not isinstance(computed, int) or isinstance(computed, bool) or not r.computed <= computed <= last:
        raise Misuse("computed", computed, f"an integer between the computed {r.computed} and the reserved {last}")
    bs, table, remapped = state.config.block_size, list(r.table), []
    if computed == r.computed:
        return Ok()
    for i in range(r.computed // bs, ceil_div(computed, bs)):
        state.contents[table[i]] = r.tokens[i * bs : min(computed, (i + 1) * bs)]
    for i in range(r.computed // bs, computed // bs):
        if state.config.publish == "schedule":
            continue
        twin = publish(state, r.namespace, r.tokens, i, table[i])
        may_remap = state.config.dedup and not state.steps  # a step in flight may still write or read the block
        if twin is not None and may_remap and choices.remap(request, i, table[i], twin):
            acquire(state, twin)
            release(state, table[i])
            remapped.append(Copy(table[i], twin))
            table[i] = twin
    state.requests[request] = replace(r, computed=computed, table=tuple(table))
    release_dead(state, request)
    return Ok(remapped=tuple(remapped))


def slots(state: State, request: RequestId, start: int, end: int) -> tuple[Slot, ...]:
    """Where the positions start..end-1 lie."""
    bs, table = state.config.block_size, state.requests[request].table
    return tuple(table[p // bs] * bs + p % bs for p in range(start, end))
