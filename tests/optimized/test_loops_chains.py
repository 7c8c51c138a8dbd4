"""The chains of idle and of held blocks are ordered sets, and come back as they were when an operation fails."""

import copy
import random
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pagedkv.optimized.groups import CacheGroup
from pagedkv.optimized.hashing import keyed_hash
from pagedkv.optimized.loops.memory import BEFORE, NEWEST_HELD, NEWEST_IDLE, OTHERS, Memory
from pagedkv.optimized.loops.paths import make, publish, use
from pagedkv.optimized.residency import relabel
from pagedkv.optimized.state import ManagerState
from pagedkv.spec import Config


@dataclass
class Model:
    """Blocks of a pool, each in as many places as it is: a stack, two ordered sets, a set and counts."""

    free: list[int]
    references: dict[int, int] = field(default_factory=dict)
    idle: OrderedDict[int, None] = field(default_factory=OrderedDict)
    held: OrderedDict[int, int] = field(default_factory=OrderedDict)
    """Each with the number of the next step at its release."""
    entered: set[int] = field(default_factory=set)
    steps: dict[int, int] = field(default_factory=dict)
    begun: int = 0

    def take(self) -> int:
        block = self.free.pop() if self.free else self.evict()
        self.references[block] = 1
        return block

    def evict(self) -> int:
        block, _ = self.idle.popitem(last=False)
        self.entered.remove(block)
        return block

    def acquire(self, block: int) -> None:
        self.references[block] = self.references.get(block, 0) + 1
        self.idle.pop(block, None)
        self.held.pop(block, None)

    def release(self, block: int) -> None:
        self.references[block] -= 1
        if self.references[block]:
            return
        del self.references[block]
        if self.steps:
            self.held[block] = self.begun + 1
        if block in self.entered:
            self.idle[block] = None
        elif not self.steps:
            self.free.append(block)

    def drop_entry(self, block: int) -> None:
        self.entered.remove(block)
        if block in self.idle:
            del self.idle[block]
            if block not in self.held:
                self.free.append(block)

    def end_step(self, step: int) -> None:
        del self.steps[step]
        oldest = min(self.steps.values(), default=self.begun + 1)
        for block in [block for block, release in self.held.items() if release <= oldest]:
            del self.held[block]
            if block not in self.idle:
                self.free.append(block)


class Pool:
    """A pool whose blocks enter the index one by one, and the model of it."""

    def __init__(self, num_blocks: int) -> None:
        config = Config(num_blocks, 1, overlapped_steps=True)
        self.state = ManagerState(config, (CacheGroup(),), keyed_hash())
        self.model = Model(list(range(num_blocks))[::-1])
        self.root = self.state.paths.root("")
        self.state.paths.hold(self.root)
        self.paths_made = 0

    def change(self, kind: str, rng: random.Random) -> None:
        """Do the same to both."""
        pool, model = self.state.pool, self.model
        used, idle = list(model.references), list(model.idle)
        match kind:
            case "take":
                count = rng.randint(0, len(model.free) + sum(block not in model.held for block in idle))
                assert pool.take(count).tolist() == [model.take() for _ in range(count)]
            case "enter" if len(model.entered) < len(used):
                self.enter(rng.choice([block for block in used if block not in model.entered] or used))
            case "acquire" if used or idle:
                blocks = rng.choices(used + idle, k=rng.randint(0, 3))
                pool.acquire(np.array(blocks, np.int64))
                for block in blocks:
                    model.acquire(block)
            case "release":
                blocks = rng.sample(used, rng.randint(0, len(used)))
                pool.release(np.array(blocks, np.int64))
                for block in blocks:
                    model.release(block)
            case "drop":
                blocks = rng.sample(sorted(model.entered), rng.randint(0, min(2, len(model.entered))))
                pool.drop_entries(np.array(blocks, np.int64))
                for block in blocks:
                    model.drop_entry(block)
            case "evict":
                count = rng.randint(0, 2)
                assert pool.evict(count) == min(count, len(idle))
                for _ in range(min(count, len(idle))):
                    block = model.evict()
                    model.free += [block] * (block not in model.held)
            case "begin":
                model.begun += 1
                pool.begin_step(model.begun)
                model.steps[model.begun] = model.begun
            case "end" if model.steps:
                step = rng.choice(list(model.steps))
                pool.end_step(step)
                model.end_step(step)
            case "permute" if not model.steps:
                self.permute(rng)

    def permute(self, rng: random.Random) -> None:
        """All blocks get other names."""
        model, name = self.model, list(range(self.state.config.num_blocks))
        rng.shuffle(name)
        relabel(self.state, np.array(name))
        model.free = [name[block] for block in model.free]
        model.references = {name[block]: count for block, count in model.references.items()}
        model.idle = OrderedDict.fromkeys(name[block] for block in model.idle)
        model.entered = {name[block] for block in model.entered}

    def enter(self, block: int) -> None:
        """A used block is found from now on, by a path of its own."""
        if block in self.model.entered:
            return
        paths = self.state.paths
        self.paths_made += 1
        tokens = np.array([self.paths_made], np.int32)
        assert paths.child(self.root, tokens) == OTHERS
        node = make(memory := Memory(*self.state.journal.fields()), self.root, tokens, 0)
        publish(memory, node, 0, block)
        use(memory, self.root, 1)
        use(memory, node, -1)  # of the path itself
        self.model.entered.add(block)

    def check(self) -> None:
        """They say the same, read forwards and backwards."""
        pool, model, memory = self.state.pool, self.model, self.state.journal.memory
        assert pool.free_blocks().tolist() == model.free[::-1]
        assert pool.idle_blocks().tolist() == list(model.idle)
        assert pool.held_blocks().tolist() == list(model.held)
        assert pool.releases(pool.held_blocks()).tolist() == list(model.held.values())
        assert backwards(memory.blocks, memory.counters[NEWEST_IDLE], pool.idle) == list(model.idle)[::-1]
        assert backwards(memory.holds, memory.counters[NEWEST_HELD], pool.held) == list(model.held)[::-1]
        assert (pool.used, pool.idle, pool.held) == (len(model.references), len(model.idle), len(model.held))


def backwards(lines: NDArray[np.integer], newest: int, count: int) -> list[int]:
    """The blocks of a chain, the last first."""
    blocks = [int(newest)][:count]
    while len(blocks) < count:
        blocks.append(int(lines[blocks[-1], BEFORE]))
    return blocks


KINDS = ("take", "acquire", "release", "release", "drop", "evict", "begin", "end", "permute")


@settings(max_examples=150, deadline=None)
@given(num_blocks=st.integers(1, 12), rng=st.randoms(use_true_random=True))
def test_chains_are_ordered_sets(num_blocks: int, rng: random.Random) -> None:
    """Against a model, through operations of several changes, some of which are taken back."""
    both = Pool(num_blocks)
    for _ in range(60):
        for _ in range(rng.randint(0, 2)):
            both.change("enter", rng)
        both.state.journal.begin()
        before = copy.deepcopy(both.model)
        for _ in range(rng.randint(1, 4)):
            both.change(rng.choice(KINDS), rng)
            both.check()
        if rng.random() < 0.4:
            both.state.roll_back()
            both.model = before
            both.check()
