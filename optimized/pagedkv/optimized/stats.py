"""What an operator sees of a manager: how full the pool is, and what has happened."""

from dataclasses import dataclass


from pagedkv.optimized.loops import calls
from pagedkv.optimized.loops.memory import (
    COPY_ON_WRITES, HIT_TOKENS, PREEMPTIONS, RESUMED_HIT_TOKENS,
)  # fmt: skip
from pagedkv.optimized.state import ManagerState


@dataclass(frozen=True)
class Stats:
    """Blocks now (`free + used + idle + leased` is the pool; `held` ones are free or idle), and events so far."""

    free: int
    used: int
    idle: int
    """Indexed, and nobody's."""
    held: int
    """Waiting for steps in flight."""
    leased: int
    """On a device, for it to hand out."""
    hit_tokens: int
    """Positions of new prompts whose KV was found."""
    resumed_hit_tokens: int
    """The same of requests that came back: what preemption did not lose."""
    evictions: int
    copy_on_writes: int
    preemptions: int
    block_utilisation: float
    """Used blocks in the pool, as a fraction."""
    slot_utilisation: float
    """Slots of used blocks that hold computed KV, as a fraction of all slots. The gap to `block_utilisation` is what
    lies empty in last blocks and in blocks reserved ahead."""


def stats_of(state: ManagerState) -> Stats:
    """The counters of a manager, as they are now."""
    pool, count, counters = state.pool, state.config.num_blocks, state.journal.counters
    return Stats(
        free=count - pool.used - pool.idle - len(pool.leased),
        used=pool.used,
        idle=pool.idle,
        held=pool.held,
        leased=len(pool.leased),
        hit_tokens=int(counters[HIT_TOKENS]),
        resumed_hit_tokens=int(counters[RESUMED_HIT_TOKENS]),
        evictions=pool.evictions,
        copy_on_writes=int(counters[COPY_ON_WRITES]),
        preemptions=int(counters[PREEMPTIONS]),
        block_utilisation=pool.used / count,
        slot_utilisation=written_slots(state) / (count * state.config.block_size),
    )


def written_slots(state: ManagerState) -> int:
    """Slots of used blocks that hold computed KV; a shared block counts once, for the owner that has filled it most."""
    return calls.written(state.journal.reading)
