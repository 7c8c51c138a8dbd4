"""Chapter 9. Sharing and giving back: fork, truncate, free.

A fork takes no block: parent and child own the same ones, the partly filled last one too (paper §4.4, parallel
sampling). The first of them to write into it copies it, and the last writes in place. What a request gives back is
available at once, unless somebody else owns it or a step in flight may still read it.
"""

from dataclasses import replace

from pagedkv.spec.blocks import acquire, drop_entry, refusal, release
from pagedkv.spec.state import State, operation, resident
from pagedkv.spec.window import sink_blocks, window_start
from pagedkv.spec.words import HOLE, Misuse, Ok, Outcome, Reason, Refused, RequestId, ceil_div, check_id


@operation
def fork(state: State, parent: RequestId, child: RequestId) -> Outcome:
    """The child is the parent: same tokens, same blocks. The parent must be computed to its end. It takes no block, so
    only `max_requests` can refuse it.

    >>> from pagedkv.spec import Config, admit, append, commit
    >>> s, _ = admit(State(Config(num_blocks=3, block_size=4)), "a", (1, 2))
    >>> s, _ = commit(s, "a", 2)
    >>> s, _ = fork(s, "a", "b")
    >>> s, outcome = append(s, "b", (9,))  # shared and half filled: the child copies, then writes
    >>> outcome.copies, s.requests["a"].table, s.requests["b"].table
    ((Copy(source=0, destination=1),), (0,), (1,))

    With no block available the same append is refused, and the child can be freed, preempted, or wait:

    >>> s, _ = admit(State(Config(num_blocks=1, block_size=4)), "a", (1, 2))
    >>> s, _ = commit(s, "a", 2)
    >>> s, _ = fork(s, "a", "b")
    >>> append(s, "b", (9,)).outcome
    Refused(reason=<Reason.CAPACITY: 'capacity'>)
    """
    r = resident(state, parent)
    check_id("child", child)
    if child in state.requests:
        raise Misuse("child", child, "the id of no known request")
    if r.computed != r.length:
        raise Misuse("parent", parent, f"a request computed to its end; {r.computed} of {r.length} tokens are")
    if refused := refusal(state, need=0, total=0, entering=True):
        return refused
    shared = r.table[: ceil_div(r.length, state.config.block_size)]
    for block in shared:
        if block != HOLE:
            acquire(state, block)
    state.requests[child] = replace(r, reserved=r.length, table=shared)
    return Ok()


@operation
def truncate(state: State, request: RequestId, length: int) -> Outcome:
    """Take back the tokens at positions >= length: a rejected draft, a regenerated answer.

    Blocks past the end are released, lookahead too; indexed ones become idle and can still be hit. The block that the
    end falls into is kept, and so is its index entry, until it is written. Refused if the window of the next query
    would begin before the end of what was released: a text does not go back into its sinks either, once something
    after them is gone.
    """
    r = resident(state, request)
    if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= r.length:
        raise Misuse("length", length, f"an integer between 1 and the request's length {r.length}")
    bs, computed, reserved = state.config.block_size, min(r.computed, length), min(r.reserved, length)
    if r.holes and window_start(state.config, computed) // bs < sink_blocks(state.config) + r.holes:
        return Refused(Reason.RELEASED)
    kept = r.table[: ceil_div(reserved, bs)]
    for block in reversed(r.table[len(kept) :]):
        release(state, block)
    if reserved % bs and kept[-1] in state.entries and len(state.contents[kept[-1]]) < bs:
        drop_entry(state, kept[-1])  # indexed ahead of a write that will not come
    state.requests[request] = replace(r, tokens=r.tokens[:length], reserved=reserved, computed=computed, table=kept)
    return Ok()


@operation
def free(state: State, request: RequestId) -> Outcome:
    """The request is gone. Blocks that only it owned are available at once, unless held; shared ones survive."""
    check_id("request", request)
    if request not in state.requests:
        raise Misuse("request", request, "the id of a known request")
    drop_table(state, request)
    del state.requests[request]
    return Ok()


def drop_table(state: State, request: RequestId) -> None:
    """Release a request's blocks, the last first."""
    for block in reversed(state.requests[request].table):
        if block != HOLE:
            release(state, block)
