"""Chapter 5. The prefix index: sharing what was computed before.

The index knows full blocks by their *identity*: the namespace and the whole token path up to the block's end (paper
§4.4, "shared prefix"). A prompt hits the longest chain of blocks from its beginning. At least one token is left to
compute, since a forward needs a query: a prompt that is wholly cached gets all but its last block.

A full block enters the index when its KV is written (`publish="commit"`), so that "cached" implies "computed". With
`publish="schedule"` it enters once the write is planned: a hit is then right because its writer runs in the same or an
earlier step, and within a step writes precede reads, even if the writer has left meanwhile. An entry outlives its
request: the block is then idle, until it is hit, evicted, or taken. Who is evicted is free; under the policy "lru" the
longest idle, where hits of admit and resume and releases count as use, lookups do not, and children may go before their
parents. A hash may find an entry, but a hit compares the tokens: a collision can cost a miss, never a wrong hit.
"""

from collections.abc import Iterable

from pagedkv.spec.blocks import CANONICAL, Choices, IllegalChoice, acquire, drop_entry, evictable, release
from pagedkv.spec.state import State, check_tokens, operation
from pagedkv.spec.words import (
    Block, Identity, Misuse, Namespace, Ok, Outcome, Reason, Refused, RequestId, Token, check_id,
)  # fmt: skip


def path(state: State, namespace: Namespace, tokens: tuple[Token, ...], block_count: int) -> Identity:
    """The identity of the last of the first `block_count` blocks."""
    return Identity(namespace, tokens[: block_count * state.config.block_size])


def match(state: State, namespace: Namespace, tokens: tuple[Token, ...]) -> list[Block]:
    """The blocks of the longest indexed prefix, uncapped."""
    found: list[Block] = []
    for count in range(1, len(tokens) // state.config.block_size + 1):
        block = state.index.get(path(state, namespace, tokens, count))
        if block is None:
            break
        found.append(block)
    return found


def find(state: State, namespace: Namespace, tokens: tuple[Token, ...], limit: int, choices: Choices) -> list[Block]:
    """The blocks that an implementation reports as present, at most `limit`.

    Where an index cannot be seen, `may` is what was published and is not known to be gone; `must` is the part held by
    tables and pins, or idle with no block taken since. An answer below `may` tells that the chain is broken there.
    """
    blocks = match(state, namespace, tokens)[:limit]
    certain = [block in state.references or state.idle_since[block] == state.takings for block in blocks]
    must = certain.index(False) if False in certain else len(blocks)
    count = choices.hits(must, len(blocks))
    if not must <= count <= len(blocks) or (count < len(blocks) and certain[count]):
        true = f"{count} cached, where at least {must} are there, and at most {len(blocks)} can be"
        raise IllegalChoice("must <= cached <= may", true, "more" if count > len(blocks) else "fewer")
    if count < len(blocks):
        drop_entry(state, blocks[count])
        del state.contents[blocks[count]]
    return blocks[:count]


def publish(state: State, namespace: Namespace, tokens: tuple[Token, ...], logical: int, block: Block) -> Block | None:
    """The full block at a logical index may be found from now on. A present entry of the same identity stays: it is
    returned, and the request keeps its own copy (rule 7: the index is right whichever copy goes first)."""
    if not state.config.prefix_cache:
        return None
    identity = path(state, namespace, tokens, logical + 1)
    if identity in state.index:
        return state.index[identity] if state.index[identity] != block else None
    state.index[identity], state.entries[block] = block, identity
    return None


def publish_scheduled(state: State, request: RequestId, start: int) -> None:
    """With `publish="schedule"`: blocks that the planned writes will fill may be found at once."""
    r = state.requests[request]
    if state.config.publish == "schedule":
        for i in range(start // state.config.block_size, min(r.reserved, r.length) // state.config.block_size):
            publish(state, r.namespace, r.tokens, i, r.table[i])


@operation
def lookup(state: State, tokens: tuple[Token, ...], namespace: Namespace = "", choices: Choices = CANONICAL) -> Outcome:
    """The length of the present prefix in tokens, in whole blocks, uncapped. Nothing moves, not even recency."""
    check_tokens(tokens, at_least=0)
    check_id("namespace", namespace)
    return Ok(cached_tokens=len(find(state, namespace, tokens, len(tokens), choices)) * state.config.block_size)


@operation
def pin(state: State, tokens: tuple[Token, ...], namespace: Namespace = "", choices: Choices = CANONICAL) -> Outcome:
    """Hold the longest present prefix, so that it is neither evicted nor overwritten, and return its length.

    Pins nest, and each counts as a reference to every block that it holds. One that holds nothing is a pin, too.
    """
    check_tokens(tokens, at_least=0)
    check_id("namespace", namespace)
    blocks = tuple(find(state, namespace, tokens, len(tokens), choices))
    for block in blocks:
        acquire(state, block)
    pinned = Identity(namespace, tokens)
    state.pins[pinned] = (*state.pins.get(pinned, ()), blocks)
    return Ok(cached_tokens=len(blocks) * state.config.block_size)


@operation
def unpin(state: State, tokens: tuple[Token, ...], namespace: Namespace = "") -> Outcome:
    """Undo the latest pin of these tokens. Without one it is misuse."""
    check_tokens(tokens, at_least=0)
    check_id("namespace", namespace)
    pinned = Identity(namespace, tokens)
    if pinned not in state.pins:
        raise Misuse("tokens", tokens, "the tokens of a pin that has not been undone")
    *earlier, blocks = state.pins.pop(pinned)
    if earlier:
        state.pins[pinned] = tuple(earlier)
    for block in reversed(blocks):
        release(state, block)
    return Ok()


@operation
def evict(state: State, blocks: int, choices: Choices = CANONICAL) -> Outcome:
    """Drop the entries of `blocks` idle blocks, or of all if there are fewer, and return how many. Which is free."""
    if not isinstance(blocks, int) or isinstance(blocks, bool) or blocks < 0:
        raise Misuse("blocks", blocks, "an integer >= 0")
    count = min(blocks, len(evictable(state)))
    victims = choices.victims(state, count)
    forget(state, victims)
    if len(victims) != count:
        raise IllegalChoice("evict drops what was asked for, if there is as much", f"{len(victims)} of {count}")
    return Ok(evicted=count)


@operation
def reset_prefix_index(state: State) -> Outcome:
    """Empty the index. The blocks of requests stay theirs; idle blocks become free. Refused while pins exist."""
    if state.pins:
        return Refused(Reason.PINNED)
    forget(state, evictable(state))
    for block in list(state.entries):
        drop_entry(state, block)
    return Ok()


def forget(state: State, blocks: Iterable[Block]) -> None:
    """Evict these blocks. Each must be idle: one that is pinned, or hit by the same operation, is used."""
    for block in list(blocks):
        if block not in state.entries or block in state.references:
            raise IllegalChoice("only an idle block is evicted", f"block {block} is not idle")
        drop_entry(state, block)
        del state.contents[block]
    state.takings += 1
