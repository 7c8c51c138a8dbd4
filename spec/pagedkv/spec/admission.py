"""Chapter 7. Admission: a request comes in.

The prompt is matched against the prefix index, and blocks are taken for what was not found. `resume` after a
recomputing preemption enters the same way, so that both obey one rule.
"""

from dataclasses import replace

from pagedkv.spec.blocks import CANONICAL, Choices, acquire, refusal, take
from pagedkv.spec.prefix import find, publish_scheduled
from pagedkv.spec.state import Request, State, check_tokens, operation
from pagedkv.spec.window import dead_blocks
from pagedkv.spec.words import HOLE, Misuse, Namespace, Ok, Outcome, RequestId, Token, ceil_div, check_id


@operation
def admit(
    state: State,
    request: RequestId,
    tokens: tuple[Token, ...],
    namespace: Namespace = "",
    reserve: int | None = None,
    choices: Choices = CANONICAL,
) -> Outcome:
    """A new request. The whole prompt is matched against the index; `computed` is what was found, in tokens.

    Slots are given to the first `reserve` positions (all, unless told; a chunked prefill passes fewer); where they lie
    is read off the table.

    >>> from pagedkv.spec import Config, commit
    >>> s = State(Config(num_blocks=4, block_size=2))
    >>> s, outcome = admit(s, "a", (1, 2, 3, 4))
    >>> s.requests["a"].table, outcome.cached_tokens
    ((0, 1), 0)
    >>> s, _ = commit(s, "a", 4)
    >>> s, outcome = admit(s, "b", (1, 2, 3, 4))  # wholly cached, yet one token must be left to compute
    >>> s.requests["b"].table, outcome.cached_tokens
    ((0, 2), 2)
    """
    check_id("request", request)
    check_id("namespace", namespace)
    if request in state.requests:
        raise Misuse("request", request, "the id of no known request")
    check_tokens(tokens)
    if reserve is not None and (type(reserve) is not int or not 0 <= reserve <= len(tokens)):
        raise Misuse("reserve", reserve, f"an integer between 0 and the prompt's length {len(tokens)}")
    return enter(state, request, Request(namespace, tokens), len(tokens) if reserve is None else reserve, choices)


def enter(state: State, request: RequestId, r: Request, reserve: int, choices: Choices) -> Outcome:
    """What admit and a recomputing resume share: hits, then fresh blocks for the rest.

    Need: a block for each reserved logical index, less the hits that are not available anyway, since a table or pin
    refers to them or a step in flight holds them; a hit on any other idle block counts. So need is what the request
    takes off the available blocks. Blocks that the window would release at once, those between the sinks and what the
    next query sees, are neither needed nor referred to.
    """
    bs = state.config.block_size
    hits = find(state, r.namespace, r.tokens, (r.length - 1) // bs, choices)
    cached = len(hits) * bs
    reserved = max(reserve, cached)
    dead = dead_blocks(state.config, cached)
    sinks, live = hits[: dead.start], hits[dead.stop :]
    owned, held = (sum(block in taken for block in sinks + live) for taken in (state.references, state.held))
    need, total = ceil_div(reserved, bs) - len(dead) - owned - held, ceil_div(r.length, bs) - len(dead)
    if refused := refusal(state, need, total, entering=True, hit_held=held):
        return refused
    for block in sinks + live:
        acquire(state, block)
    fresh = [take(state, request, i, choices) for i in range(len(hits), ceil_div(reserved, bs))]
    table = (*sinks, *[HOLE] * len(dead), *live, *fresh)
    state.takings += bool(fresh)
    state.requests[request] = replace(r, reserved=reserved, computed=cached, table=table, residency="resident")
    publish_scheduled(state, request, cached)
    return Ok(cached_tokens=cached)
