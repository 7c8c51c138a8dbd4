"""Chapter 4. Blocks: need, availability, and the freedom of an allocator.

Allocation is *relational*: where a block is needed, any available block may be taken, and no implementation is wrong
for its choice. What is not free is *whether* an operation goes through: it is refused when it needs more blocks than
are available, and must not be refused otherwise. `Choices` is the allocator's freedom made a value: the rules ask it
where an implementation may decide, and check that the answer was legal.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pagedkv.spec.state import State
from pagedkv.spec.words import Block, Reason, Refused, RequestId


class IllegalChoice(Exception):
    """An implementation decided something that no rule allows; `law` is the rule that it broke, `kind` in which way,
    if there are several."""

    def __init__(self, law: str, detail: str, kind: str = "") -> None:
        super().__init__(f"{law}: {detail}")
        self.law, self.detail, self.kind = law, detail, kind


def is_available(state: State, block: Block) -> bool:
    """Free or idle, and not held: it may be handed out."""
    return 0 <= block < state.config.num_blocks and block not in state.references and block not in state.held


def available(state: State) -> int:
    """How many blocks may be handed out (every held block is one that nobody refers to)."""
    return state.config.num_blocks - len(state.references) - len(state.held)


def available_in_order(state: State) -> Iterator[Block]:
    """Free blocks first, so that nothing is evicted that need not be; the lowest first, which is only a custom."""
    blocks = range(state.config.num_blocks)
    yield from (block for block in blocks if is_available(state, block) and block not in state.entries)
    yield from (block for block in blocks if is_available(state, block) and block in state.entries)


def evictable(state: State) -> list[Block]:
    """Idle blocks: whoever evicts, evicts among these. A pinned block is used, so it is not here."""
    return [block for block in state.entries if block not in state.references]


@dataclass(frozen=True)
class Choices:
    """Where an implementation may decide. The defaults are one legal implementation."""

    block: Callable[[State, RequestId, int], Block] = lambda state, request, logical: next(available_in_order(state))
    """The block to take for the logical index of a request: any available one."""
    hits: Callable[[int, int], int] = lambda must, may: may
    """How many blocks of a prompt are found: between `must` and `may`, equal where the index can be seen."""
    victims: Callable[[State, int], Sequence[Block]] = lambda state, count: sorted(evictable(state))[:count]
    """The idle blocks that `evict` drops from the index."""
    remap: Callable[[RequestId, int, Block, Block], bool] = lambda request, logical, own, indexed: False
    """With `dedup`: whether a request gives up its own block for the indexed one of the same identity."""


CANONICAL = Choices()


def refusal(state: State, need: int, total: int, *, entering: bool = False, hit_held: int = 0) -> Refused | None:
    """The one place where capacity refuses: `need` blocks must be available, and `total` must fit the pool at all.

    `entering` requests also need one of the `max_requests` places. `in_flight` says that waiting helps: it would fit
    but for the held blocks, `hit_held` of which it would own again and nobody has to wait for.
    """
    limit = state.config.max_requests
    if total > state.config.num_blocks:
        return Refused(Reason.UNSERVABLE)
    if entering and limit is not None and sum(r.residency == "resident" for r in state.requests.values()) >= limit:
        return Refused(Reason.MAX_REQUESTS)
    if need > available(state):
        waiting_helps = need <= available(state) + len(state.held) - hit_held
        return Refused(Reason.IN_FLIGHT if waiting_helps else Reason.CAPACITY)
    return None


def take(state: State, request: RequestId, logical: int, choices: Choices) -> Block:
    """Hand out one available block. An idle one is evicted by that: its entry goes."""
    block = choices.block(state, request, logical)
    if not is_available(state, block):
        detail = f"block {block} for {request!r}[{logical}] {_why_not(state, request, logical, block)}"
        raise IllegalChoice("only an available block is handed out", detail)
    drop_entry(state, block)
    state.contents[block] = ()
    acquire(state, block)
    return block


def _why_not(state: State, request: RequestId, logical: int, block: Block) -> str:
    """Why a block is not available, for people."""
    if block in state.held:
        return "is held by a step in flight"
    if block not in state.references:
        return f"is no block of the pool, which has {state.config.num_blocks}"
    tables = {name: r.table for name, r in state.requests.items()}
    others = ", ".join(repr(name) for name, table in tables.items() if block in table and name != request)
    if block in tables.get(request, ())[logical : logical + 1]:
        return f"is shared with {others or 'a pin'} and about to be written: expected a copy (copy-on-write)"
    pinned = any(block in blocks for stack in state.pins.values() for blocks in stack)
    own = "a pin" if pinned else "the same request"  # which has it already, or has just hit it
    return f"is in use by {others or own}"


def acquire(state: State, block: Block) -> None:
    """One more reference. A held block that is hit is used again, and no longer waits."""
    state.references[block] = state.references.get(block, 0) + 1
    state.held.pop(block, None)
    state.idle_since.pop(block, None)


def release(state: State, block: Block) -> None:
    """One reference fewer. With the last one the block is available at once, or held while steps are in flight."""
    state.references[block] -= 1
    if state.references[block]:
        return
    del state.references[block]
    if state.steps:
        state.held[block] = frozenset(state.steps)
    if block in state.entries and len(state.contents[block]) == state.config.block_size:
        state.idle_since[block] = state.takings
    else:  # not indexed, or indexed ahead of a write that will now never come
        drop_entry(state, block)
        del state.contents[block]


def drop_entry(state: State, block: Block) -> None:
    """The prefix index forgets the block."""
    identity = state.entries.pop(block, None)
    if identity is not None:
        del state.index[identity]
        state.idle_since.pop(block, None)
