"""Block managers that decide differently and are all legal: conformance rejects none of them.

Each is the reference with one freedom of the specification used otherwise, and declares what it is.
"""

import random
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Any

from pagedkv.reference.manager import BlockManager
from pagedkv.reference.pool import BlockPool
from pagedkv.spec.subject import Capabilities, Snapshot, SubjectFactory
from pagedkv.spec.words import Block, Config, RequestId


class RandomFree(BlockPool):
    """Any free block."""

    def __init__(self, config: Config, seed: int = 0) -> None:
        super().__init__(config)
        self.random = random.Random(seed)

    def choose_free(self, free: Sequence[Block]) -> Block:
        return self.random.choice(free)


class HighestFirst(BlockPool):
    """The free block with the highest number."""

    def choose_free(self, free: Sequence[Block]) -> Block:
        return max(free)


class LastReleasedFirst(BlockPool):
    """The block that became free last: the free list is a stack."""

    def choose_free(self, free: Sequence[Block]) -> Block:
        return free[-1]


class RoundRobin(BlockPool):
    """The next free block after the one taken last, all around the pool."""

    last = -1

    def choose_free(self, free: Sequence[Block]) -> Block:
        self.last = min(free, key=lambda block: (block - self.last - 1) % self.num_blocks)
        return self.last


class MostRecentVictim(BlockPool):
    """Evicts what was released last: a parent before its children."""

    def choose_victim(self, skip: Container[Block]) -> Block:
        return next(block for block in reversed(self.index.idle) if block not in skip)


class RandomVictim(BlockPool):
    """Evicts any idle block."""

    def __init__(self, config: Config, seed: int = 0) -> None:
        super().__init__(config)
        self.random = random.Random(seed)

    def choose_victim(self, skip: Container[Block]) -> Block:
        return self.random.choice([block for block in self.index.idle if block not in skip])


class EvictingFirst(BlockPool):
    """Evicts although blocks are free, as if nothing were ever worth keeping: taking prefers idle blocks."""

    def take(self) -> Block:
        spare = [block for block in self.index.idle if block not in self.held]
        if spare:
            self.forget(spare[0])
            self.free.rotate(1)  # the block just freed is the next to be taken
        return super().take()


class EvictingAll(BlockPool):
    """Empties the index of everything idle whenever it takes a block."""

    def take(self) -> Block:
        for block in list(self.index.idle):
            self.forget(block)
        return super().take()


class Variant(BlockManager):
    """The reference on another pool, declaring what it is."""

    def __init__(self, config: Config, pool: BlockPool | None = None, **declared: Any) -> None:
        super().__init__(config, pool)
        self.declared = declared

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, **self.declared)


class Silent(Variant):
    """Shows neither its index nor its reference counts. `evict` is undeclared: nobody could see what it dropped."""

    def observe(self, requests: Sequence[RequestId] | None = None) -> Snapshot:
        return replace(super().observe(requests), index=None, references=None)


def _on(pool: Callable[[Config], BlockPool], manager: type[Variant] = Variant, **declared: Any) -> SubjectFactory:
    return lambda config: manager(config, pool(config), **declared)


_UNSEEN: dict[str, Any] = {"reports_index": False, "evict": False}

LEGAL: dict[str, SubjectFactory] = {
    "random_free": _on(RandomFree),
    "highest_first": _on(HighestFirst),
    "last_released_first": _on(LastReleasedFirst),
    "round_robin": _on(RoundRobin),
    "most_recent_victim": _on(MostRecentVictim, policy="any"),
    "random_victim": _on(RandomVictim, policy="any"),
    "evicting_first": _on(EvictingFirst, policy="any"),
    "evicting_all": lambda config: Variant(replace(config, publish="commit"), EvictingAll(config), policy="any"),
    "publishing_at_schedule": lambda config: Variant(replace(config, publish="schedule")),
    "deduplicating": lambda config: Variant(replace(config, dedup=True)),
    "deduplicating_at_random": lambda config: Variant(replace(config, dedup=True), RandomFree(config, seed=1)),
    "silent": _on(BlockPool, Silent, **_UNSEEN),
    "silent_evicting_first": _on(EvictingFirst, Silent, **_UNSEEN, policy="any"),
    "silent_random_victim": _on(RandomVictim, Silent, **_UNSEEN, policy="any"),
}
"""By name: a factory of each."""
