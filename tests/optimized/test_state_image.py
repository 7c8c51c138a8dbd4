"""The image of a manager sees every change that means something, and none that does not."""

import random
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagedkv.optimized.loops import memory as words
from pagedkv.optimized.loops.memory import (
    BEFORE, BLOCKS, COMPUTED, DIRTY, DIRTY_STACK, ENTRY, FIRST_CHILD, GONE, HELD, HOLDERS, HOLE, HOLES, IDLE, LENGTH,
    LOGGED, NEWEST_HELD, NEWEST_IDLE, NEXT, NEXT_FREE, NODE_STACK, NUM_DIRTY, NUM_FREE, NUM_NODES_UNUSED,
    NUM_ROWS_UNUSED, NUM_SWAP_FREE, OLDEST_HELD, OLDEST_IDLE, PARENT, PATH, PLACE, REFERENCES, RELEASE, RESERVED, ROOM,
    ROW_STACK, STATE, USERS, WINDOWS, Memory,
)  # fmt: skip
from pagedkv.optimized.manager import BlockManager
from pagedkv.optimized.rows import ABSENT
from pagedkv.optimized.state import ManagerState

from tests.optimized import lease_programs
from tests.optimized.atomic_scenarios import SHAPES, branching, computed, copied, lively
from tests.optimized.faults import at_lines, damage
from tests.optimized.feature_programs import FULL, SINKS, AdmitApart, AdmitExternal, Featured, Invalidate
from tests.optimized.manager_programs import CONFIGS
from tests.optimized.state_image import (
    COUNTER_NAMES, OTHER_PARTS, PASSING, answer, differences, image, parts_of,
)  # fmt: skip

LIVELY: Final = lively()
TWINS: Final = branching()
KEYS: Final = sorted(key for key in image(LIVELY) if not key.startswith("chains."))


def poked(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, np.ndarray):
        return value + 1 if value.size else np.zeros(1, value.dtype)
    if isinstance(value, dict):
        return {**value, "poked": 1} if not value else dict(list(value.items())[1:])
    if isinstance(value, list):
        return value[1:] + value[:1]
    return (*value[::-1], 7) if isinstance(value, tuple) else (not value if isinstance(value, bool) else value + 1)


def poke(state: ManagerState, key: str) -> None:
    """Change what the image calls so."""
    part, name = key.split(".")
    journal = state.journal
    if part == "memory":
        array = getattr(journal.memory, name)
        journal._use(journal.memory._replace(**{name: array[:-1] if name == "counters" else poked(array)}))
        journal.counters = journal.memory.counters
    elif part == "counters":
        journal.counters[int(name) if name.isdigit() else getattr(words, name)] += 1
    else:
        owner = vars(parts_of(state)[part])
        owner[name] = poked(owner[name])


@pytest.mark.parametrize("key", KEYS)
def test_every_attribute_array_and_counter_is_seen(key: str) -> None:
    manager = copied(LIVELY)
    poke(manager._state, key)
    assert key in differences(image(manager), image(LIVELY))


def test_no_attribute_is_left_out() -> None:
    """What is neither in the image nor known to mean nothing is new, and to be thought about."""
    for part, owner in parts_of(LIVELY._state).items():
        known = {key.split(".")[1] for key in {*KEYS, *PASSING} if key.startswith(part)}
        assert vars(owner).keys() <= known | OTHER_PARTS | {"memory"}
    assert {f"memory.{name}" for name in Memory._fields} <= {*KEYS} | PASSING
    assert [getattr(words, name) for name in COUNTER_NAMES] == list(range(WINDOWS))


def test_a_new_array_and_a_new_counter_are_seen() -> None:
    """Before anybody has thought about them."""
    manager = copied(LIVELY)
    journal, wider = manager._state.journal, namedtuple("Wider", [*Memory._fields, "new"])
    values = {**journal.memory._asdict(), "counters": np.append(journal.counters, 0), "new": np.zeros(3)}
    journal._use(wider(**values))  # type: ignore[arg-type]  # one field more than the memory has
    before = image(manager)
    journal.memory.counters[-1] = values["new"][0] = 1
    assert differences(image(manager), before) == [f"counters.{WINDOWS + 2}", "memory.new"]


Means = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def meaning(manager: BlockManager) -> Iterator[Means]:
    """Every array in parts, and which places in them mean something: what the text of `Memory` says, turned round."""
    state, memory = manager._state, manager._state.journal.memory
    numbers, links, counters = memory.numbers, memory.links, memory.counters
    known = numbers[STATE] != ABSENT
    node = np.isin(np.arange(len(links)), state.paths.nodes())
    yield memory.tables, np.broadcast_to(before_end(memory.tables, known, numbers[BLOCKS]), memory.tables.shape)
    yield memory.tokens, before_end(memory.tokens, known, numbers[LENGTH])
    yield memory.spelled, np.repeat((node & (links[:, PARENT] != -1))[:, None], memory.spelled.shape[1], axis=1)
    yield links[:, HOLDERS:], np.ones(links[:, HOLDERS:].shape, np.bool_)
    yield memory.log, np.zeros(memory.log.shape, np.bool_)
    yield numbers[PLACE], np.zeros(len(known), np.bool_)
    for line in (*(numbers[each] for each in (LENGTH, RESERVED, COMPUTED, BLOCKS, PATH, ROOM)), *numbers[HOLES:]):
        yield line, known
    for column in (PARENT, FIRST_CHILD, USERS):
        yield links[:, column], node
    of_blocks = memory.blocks[:, REFERENCES], memory.blocks[:, ENTRY], memory.holds[:, RELEASE]
    for line in (numbers[STATE], numbers[DIRTY], *of_blocks):
        yield line, np.ones(len(line), np.bool_)
    for stack, count in ((numbers[DIRTY_STACK], NUM_DIRTY), (numbers[ROW_STACK], NUM_ROWS_UNUSED),
                         (links[:, NODE_STACK], NUM_NODES_UNUSED), (state.swap_free, NUM_SWAP_FREE)):  # fmt: skip
        yield stack, np.arange(len(stack)) < counters[count]
    yield from neighbours(manager)
    yield counters, counting(counters)


def before_end(rectangle: np.ndarray[Any, Any], known: Any, ends: Any) -> Any:
    return (np.arange(rectangle.shape[-1]) < ends[:, None]) & known[:, None]


def neighbours(manager: BlockManager) -> Iterator[Means]:
    """Of the blocks of chains: the last has none after it, the first none before it. Of free ones nobody asks what is
    before them."""
    pool, memory = manager._state.pool, manager._state.journal.memory
    free, idle, held = pool.free_blocks().tolist(), pool.idle_blocks().tolist(), pool.held_blocks().tolist()
    for array, after, before in ((memory.blocks, free[:-1] + idle[:-1], idle[1:]), (memory.holds, held[:-1], held[1:])):
        yield array[:, NEXT], np.isin(np.arange(len(array)), after)
        yield array[:, BEFORE], np.isin(np.arange(len(array)), before)


def counting(counters: np.ndarray[Any, Any]) -> Any:
    """Which counters mean something."""
    means = ~np.isin(np.arange(len(counters)), [LOGGED, GONE])
    for length, ends in (
        (NUM_FREE, [NEXT_FREE]),
        (IDLE, [OLDEST_IDLE, NEWEST_IDLE]),
        (HELD, [OLDEST_HELD, NEWEST_HELD]),
    ):
        means[ends] = counters[length] > 0
    return means


def test_every_number_is_seen_that_means_something() -> None:
    """Numbers of meaning, one by one; the others all at once."""
    manager, before = copied(LIVELY), image(LIVELY)
    every = list(meaning(manager))
    assert sum(array.size for array, _ in every) == sum(
        array.size for array in (*manager._state.journal.memory, manager._state.swap_free)
    )
    assert sum(np.count_nonzero(~means) for _, means in every) > 1000
    for array, means in every:
        for place in np.flatnonzero(means).tolist():
            array.flat[place] ^= 1
            assert differences(image(manager), before)
            array.flat[place] ^= 1
    for array, means in every:
        array[~means] ^= 1
    assert not differences(image(manager), before)


def scramble(manager: BlockManager, chance: np.random.Generator) -> None:
    """Fill what means nothing with anything; where the name of a block may have been left, with that of any."""
    memory, num_blocks = manager._state.journal.memory, manager.config.num_blocks
    for array, means in list(meaning(manager)):
        named = {id(memory.tables): (HOLE, num_blocks), id(memory.counters): (0, num_blocks)}
        in_chain = any(array.base is each for each in (memory.blocks, memory.holds))
        low, high = (0, num_blocks) if in_chain else named.get(id(array), (-(2**31), 2**31))
        array[~means] = chance.integers(low, high, np.count_nonzero(~means))


@given(CONFIGS, st.sampled_from([{}, {"events": True}, {"groups": (FULL, SINKS)}]), st.integers(0, 2**32))
def test_what_means_nothing_changes_nothing(config: Any, options: dict[str, Any], seed: int) -> None:
    """Equal images have one future, whatever there is besides."""
    rng, chance = random.Random(seed), np.random.default_rng(seed)
    manager, twin = Featured(config, **options), Featured(config, **options)
    for _ in range(30):
        op = lease_programs.operation(rng, manager, (AdmitApart, AdmitExternal, Invalidate))
        manager.plan = twin.plan = None
        scramble(twin, chance)
        assert not differences(image(manager), image(twin))
        assert str(lease_programs.run(manager, op)) == str(lease_programs.run(twin, op))
        assert answer(manager, manager.plan) == answer(twin, twin.plan)
    twin.check()


def swap_ends(state: ManagerState, lines: np.ndarray[Any, Any], ends: tuple[int, int], blocks: list[int]) -> None:
    """The first and the last of a chain change places."""
    order = [blocks[-1], *blocks[1:-1], blocks[0]]
    state.journal.counters[[*ends]] = order[0], order[-1]
    lines[order[:-1], NEXT], lines[order[1:], BEFORE] = order[1:], order[:-1]


def swap_free(state: ManagerState, first: int, last: int) -> None:
    """The only two free blocks change places."""
    state.journal.counters[NEXT_FREE] = last
    state.journal.memory.blocks[last, NEXT] = first


REACH: Final[dict[str, Callable[[Any], object]]] = {
    "another holder of an id": lambda s: s.rows.row_of.update(a=s.rows.row_of["b"]),
    "saved blocks": lambda s: s.rows.known(s.rows.row_of["e"]).saved.__setitem__(0, 5),
    "a pinned block": lambda s: s.pins["", np.array([1, 2, 3, 4], np.int32).tobytes()][0].__setitem__(0, 5),
    "pins of a prefix": lambda s: s.pins.update({("other", np.array([5, 5], np.int32).tobytes()): ()}),
    "number of a step": lambda s: s.pool.steps.update({1: 9}),
    "order of steps": lambda s: s.pool.steps.update({1: s.pool.steps.pop(1)}),
    "order of idle blocks": lambda s: swap_ends(
        s, s.journal.memory.blocks, (OLDEST_IDLE, NEWEST_IDLE), s.pool.idle_blocks().tolist()
    ),
    "order of free blocks": lambda s: swap_free(s, *s.pool.free_blocks().tolist()),
    "order of held blocks": lambda s: swap_ends(
        s, s.journal.memory.holds, (OLDEST_HELD, NEWEST_HELD), s.pool.held_blocks().tolist()
    ),
    "order of dirty rows": lambda s: s.rows.numbers[DIRTY_STACK].__setitem__(
        [0, 1], s.rows.numbers[DIRTY_STACK, 1::-1]
    ),
    "a dirty mark": lambda s: s.rows.numbers[DIRTY].__setitem__(s.rows.row_of["a"], 9),
    "an event": lambda s: s.events._events.__setitem__(0, s.events._events[1]),
    "a digest of a path": lambda s: s.paths._path_digest.update({next(iter(s.paths._path_digest)): b"x"}),
    "a root": lambda s: s.paths.roots.update({"": 5}),
}


@pytest.mark.parametrize("what", REACH)
def test_what_lies_deeper_is_seen(what: str) -> None:
    manager = lively()
    assert not differences(image(manager), image(LIVELY))
    REACH[what](manager._state)
    assert differences(image(manager), image(LIVELY))


def test_chains_of_equal_digests_are_seen() -> None:
    for name in ("_others", "_twin", "_digest"):
        manager = copied(TWINS)
        links = vars(manager._state.paths)[name]
        assert links
        links[next(iter(links))] = 99
        assert differences(image(manager), image(TWINS)) == [f"paths.{name}"]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_copy_is_the_same_and_an_image_stays(shape: str) -> None:
    manager = lively(**SHAPES[shape])
    before, twin = image(manager), copied(manager)
    assert not differences(image(twin), before)
    computed(twin, "more", [1, 2, 3])
    twin.free_batch(["a", "c", "e"])
    assert not differences(image(manager), before)


def test_damage_is_noticed() -> None:
    """An operation that is not atomic: it frees one request after another."""
    failures, wrong = damage(lambda: copied(LIVELY), lambda m: [m.free("a"), m.free("c")], at_lines("line"))
    assert len(wrong) > failures // 3
