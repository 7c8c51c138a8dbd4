"""The pool of a soak: options by chance, choices with the manager's own state in view, and the drain rule."""

import random
from collections.abc import Callable

from pagedkv.optimized import BlockManager
from pagedkv.optimized.groups import CacheGroup
from pagedkv.optimized.subject import OptimizedSubject
from pagedkv.spec import Config, Ok, Operation, Outcome, Reason, Refused
from pagedkv.spec.subject import Lengths


class LawBroken(AssertionError):
    """Something that must never be, and was."""


def must(law: str, holds: bool, detail: object = "") -> None:
    """Raise unless it holds."""
    if not holds:
        raise LawBroken(f"{law}: {detail}")


def draw_manager(rng: random.Random) -> BlockManager:
    """An empty pool with options by chance: one in three has cache groups, the others are subjects of the kit."""
    config = Config(
        num_blocks=rng.randint(2, rng.choice((6, 16, 48))),
        block_size=rng.choice((1, 2, 2, 3, 4, 16)),
        prefix_cache=rng.random() < 0.85,
        sliding_window=rng.choice((None, rng.randint(1, 9))),
        sink_tokens=rng.choice((0, rng.randint(1, 5))),
        max_rollback=rng.choice((0, 0, 1, 3)),
        swap_blocks=rng.choice((0, 3, 12)),
        max_requests=rng.choice((None, None, rng.randint(1, 6))),
        overlapped_steps=rng.random() < 0.5,
    )
    if rng.random() < 0.67:
        return OptimizedSubject(config)
    sizes = [
        (rng.choice((None, rng.randint(1, 9))), rng.choice((0, rng.randint(1, 5)))) for _ in range(rng.randint(1, 3))
    ]
    return BlockManager(
        config.num_blocks * len(sizes), config.block_size, prefix_cache=config.prefix_cache,
        groups=[CacheGroup(*size) for size in sizes], max_rollback=config.max_rollback, swap_blocks=config.swap_blocks,
        max_requests=config.max_requests, overlapped_steps=config.overlapped_steps, hash_seed=b"soak",
        events=rng.random() < 0.5, debug=rng.random() < 0.5,
    )  # fmt: skip


class SoakedPool:
    """A manager, what of it is in use, and choices that are legal by what it shows."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)
        self.manager = draw_manager(self.rng)
        self.block_size = self.manager.config.block_size
        self.known: list[int] = []
        """Ids of requests, resident or preempted."""
        self.newest = 0
        """The latest id that was used, of a request or a step."""
        self.texts: list[list[int]] = [[0] * self.block_size]
        self.pins: list[tuple[list[int], str]] = []
        self.steps: list[int] = []

    def lengths(self, request: int) -> Lengths:
        return self.manager.snapshot([request]).lengths[request]

    def pick(self, *, resident: bool = True) -> tuple[int, Lengths] | None:
        """A request that is there, or one that is not."""
        for request in self.rng.sample(self.known, min(3, len(self.known))):
            lengths = self.lengths(request)
            if lengths.resident == resident:
                return request, lengths
        return None

    def residents(self) -> list[tuple[int, Lengths]]:
        """All that are there, in any order; now and then not all of them, or one twice."""
        found = [(r, n) for r, n in self.manager.snapshot(self.known).lengths.items() if n.resident]
        self.rng.shuffle(found)
        if found and self.rng.random() < 0.2:
            found = found[1:] if self.rng.random() < 0.5 else [*found, found[0]]
        return [(int(str(request)), lengths) for request, lengths in found]

    def tokens(self, most: int) -> list[int]:
        return self.rng.choices((0, 1), (5, 1), k=self.rng.randint(1, most))

    def prompt(self) -> tuple[list[int], str]:
        """Something known and something new."""
        known = self.rng.choice(self.texts)
        text = known[: self.rng.randint(0, len(known))] + self.tokens(2 * self.block_size)
        if self.rng.random() < 0.3:
            self.texts = [*self.texts[-7:], text[: 6 * self.block_size]]
        return text, self.rng.choice(("", "", "", "other"))

    def foretold(self, operation: Operation, run: Callable[[], Outcome]) -> bool:
        """Run an operation; sometimes what it takes is forecast first. Whether it was carried out."""
        if self.rng.random() < 0.9:
            return isinstance(run(), Ok)
        need, before = self.manager.blocks_needed(operation), self.manager.available_blocks
        outcome = run()
        if isinstance(outcome, Refused):
            scarce = outcome.reason in (Reason.CAPACITY, Reason.IN_FLIGHT)
            must("refused for want of blocks: need > available", need > before or not scarce, (operation, need, before))
            return False
        fell = before - self.manager.available_blocks
        must("need is by how much the available blocks fall", fell == need, (operation, need, fell))
        return True

    def new_id(self) -> int:
        self.newest += 1
        return self.newest

    def computed(self, lengths: Lengths) -> int:
        """How far to commit: mostly to the end."""
        last = min(lengths.reserved, lengths.length)
        return last if self.rng.random() < 0.8 else self.rng.randint(lengths.computed, last)

    def drain(self) -> None:
        """Nothing is left behind, and everything that fits comes in."""
        manager = self.manager
        manager.check()
        for step in self.steps:
            manager.end_step(step)
        for pinned in self.pins:
            manager.unpin(*pinned)
        for request in self.known:
            manager.free(request)
        manager.check()
        blocks = manager.config.num_blocks
        must("drain: every block is available", manager.available_blocks == blocks, manager.available_blocks)
        whole = [1] * (blocks // len(manager.groups) * self.block_size)
        outcome = manager.admit("drain", whole, "drain")
        must("drain: what fits is admitted", isinstance(outcome, Ok), outcome)
        manager.commit("drain", len(whole))
        manager.free("drain")
        manager.check()
