"""The image of a manager sees every change that means something, and none that does not."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest
from pagedkv.optimized.manager import BlockManager
from pagedkv.optimized.rows import ABSENT

from tests.optimized.atomic_scenarios import SHAPES, branching, computed, copied, lively
from tests.optimized.faults import at_lines, damage
from tests.optimized.state_image import OTHER_PARTS, differences, image, parts_of

LIVELY: Final = lively()
TWINS: Final = branching()
KEYS: Final = sorted(image(LIVELY))
NEVER_CHANGED: Final = frozenset({"state.whole_prefix", "rows.sinks", "paths.block_size", "pool.num_blocks",
                                  "index.num_groups"})  # fmt: skip


def poked(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, np.ndarray):
        return value + 1
    if isinstance(value, dict):
        return {**value, "poked": 1} if not value else dict(list(value.items())[1:])
    if isinstance(value, list):
        return [poked(value[0]), *value[1:]] if isinstance(value[0], np.ndarray) else value[1:] + value[:1]
    return (*value[::-1], 7) if isinstance(value, tuple) else (not value if isinstance(value, bool) else value + 1)


@pytest.mark.parametrize("key", KEYS)
def test_every_attribute_is_seen(key: str) -> None:
    manager = copied(LIVELY)
    part, name = key.split(".")
    owner = vars(parts_of(manager._state)[part])
    if name.endswith("_queue"):
        queue = owner[name]
        queue._tail -= 1
    elif name in ("scratch", "_scratch"):
        owner[name] = owner[name][1:]
    else:
        owner[name] = poked(owner[name])
    assert key in differences(image(manager), image(LIVELY))


def test_no_attribute_is_left_out() -> None:
    """What is neither in the image nor known to be another part is new, and to be thought about."""
    for part, owner in parts_of(LIVELY._state).items():
        assert vars(owner).keys() <= {key.split(".")[1] for key in KEYS if key.startswith(part)} | OTHER_PARTS


def places(manager: BlockManager) -> Iterator[tuple[np.ndarray[Any, Any], int, bool]]:
    """Every place of every array, and whether what stands there means something."""
    state = manager._state
    rows, paths, pool = state.rows, state.paths, state.pool
    known = rows.state != ABSENT
    node = np.isin(np.arange(len(paths.parent)), paths.nodes())
    in_tables = (np.arange(rows.tables.shape[2]) < rows.blocks[:, None]) & known[:, None]
    in_tokens = (np.arange(rows.tokens.shape[1]) < rows.length[:, None]) & known[:, None]
    spelled = np.repeat((node & (paths.parent != -1))[:, None], paths.block_size, axis=1)
    meaning: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = [
        (rows.tables, np.broadcast_to(in_tables, rows.tables.shape)),
        (rows.tokens, in_tokens),
        (rows.numbers[1:], np.broadcast_to(known, rows.numbers[1:].shape)),
        (rows._unused, np.arange(len(rows._unused)) < rows._num_unused),
        (paths.parent, node),
        (paths.first_child, node),
        (paths.users, node),
        (paths.tokens, spelled),
        (paths.blocks, np.ones(paths.blocks.shape, np.bool_)),
        (paths._unused, np.arange(len(paths._unused)) < paths._num_unused),
        (pool.references, np.ones(pool.num_blocks, np.bool_)),
        (pool._free, np.arange(pool.num_blocks) < pool._num_free),
        (pool._next_step_at_release, np.ones(pool.num_blocks, np.bool_)),
        (state.index.entry, np.ones(pool.num_blocks, np.bool_)),
        (state.swap_free, np.arange(len(state.swap_free)) < state.num_swap_free),
    ]
    for array, means in meaning:
        for place, each in enumerate(means.reshape(-1).tolist()):
            yield array, place, each


def test_every_number_is_seen_that_means_something() -> None:
    """Numbers of meaning, one by one; the others all at once."""
    manager, before, meaningless = copied(LIVELY), image(LIVELY), 0
    for _, _, means in places(manager):
        if not means:
            meaningless += 1
    assert meaningless > 1000
    for array, place, means in list(places(manager)):
        if means:
            array.flat[place] += 1
            assert differences(image(manager), before)
            array.flat[place] -= 1
    for array, place, means in list(places(manager)):
        if not means:
            array.flat[place] += 1
    assert not differences(image(manager), before)


REACH: Final[dict[str, Callable[[Any], object]]] = {
    "another holder of an id": lambda s: s.rows.row_of.update(a=s.rows.row_of["b"]),
    "saved blocks": lambda s: s.rows.known(s.rows.row_of["e"]).saved.__setitem__(0, 5),
    "a pinned block": lambda s: s.pins["", np.array([1, 2, 3, 4], np.int32).tobytes()][0].__setitem__(0, 5),
    "pins of a prefix": lambda s: s.pins.update({("other", np.array([5, 5], np.int32).tobytes()): ()}),
    "number of a step": lambda s: s.pool.steps.update({1: 9}),
    "order of steps": lambda s: s.pool.steps.update({1: s.pool.steps.pop(1)}),
    "order of idle blocks": lambda s: swap_ends(s.pool._idle_queue),
    "order of held blocks": lambda s: swap_ends(s.pool._held_queue),
    "a dirty mark": lambda s: s.rows.dirty.update({next(iter(s.rows.dirty)): 9}),
    "an event": lambda s: s.events._events.__setitem__(0, s.events._events[1]),
    "a digest of a path": lambda s: s.paths._path_digest.update({next(iter(s.paths._path_digest)): b"x"}),
    "a root": lambda s: s.paths.roots.update({"": 5}),
}


def swap_ends(queue: Any) -> None:
    """The first and the last of a queue change places."""
    first, last = queue._head, queue._tail - 1
    order = queue._order
    order[first], order[last] = order[last], order[first]
    queue._place[order[first]], queue._place[order[last]] = first, last


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
