"""Managers in the middle of things, and every operation in every way in which it can go."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
from pagedkv.optimized.copying import twin_of
from pagedkv.optimized.groups import CacheGroup
from pagedkv.optimized.manager import BlockManager

Prepare: TypeAlias = Callable[[BlockManager], object]
Operate: TypeAlias = Callable[[BlockManager], object]


def copied(manager: BlockManager) -> BlockManager:
    """A manager that goes its own way from here."""
    twin = twin_of(manager)
    twin._state = manager._state.copy()
    return twin


def computed(manager: BlockManager, request: Any, tokens: list[int], namespace: str = "", keep: bool = True) -> None:
    """A request with all its KV, or only what it leaves in the index."""
    manager.admit(request, tokens, namespace)
    manager.commit(request, len(tokens))
    if not keep:
        manager.free(request)


def lively(num_blocks: int = 18, **options: Any) -> BlockManager:
    """Requests in every state, blocks of every kind: shared, idle, pinned, held, saved. Of 18 blocks 2 are free."""
    chosen: dict[str, Any] = {"swap_blocks": 8, "hash_seed": b"atomic", "events": True, "overlapped_steps": True}
    manager = BlockManager(num_blocks, 2, **chosen | options)
    computed(manager, "a", [1, 2, 3, 4, 5, 6, 7])
    manager.fork("a", "b")
    computed(manager, "c", [1, 2, 3, 4, 9, 9])
    computed(manager, "d", [5, 5, 5, 5], "other")
    computed(manager, "gone", [8, 8, 8, 8, 8], keep=False)
    manager.pin([1, 2, 3, 4])
    manager.pin([1, 2, 3, 4])
    manager.pin([5, 5], "other")
    computed(manager, "e", [1, 2, 7, 7, 7])
    manager.preempt("e", "swap")
    computed(manager, "f", [6, 6, 6])
    manager.preempt("f")
    manager.admit("h", [2, 2, 2, 2, 2], reserve=1)  # a prompt in chunks
    manager.commit("h", 1)
    computed(manager, "i", [3, 3, 3, 3])
    manager.truncate("i", 3)  # its second block is still known as a full one
    if manager.config.overlapped_steps:
        manager.begin_step(1)
    computed(manager, "held", [4, 4, 4, 4], keep=False)
    if manager.config.overlapped_steps:
        manager.begin_step(2)
    return manager


def nothing(manager: BlockManager) -> None:
    """No preparation."""


def steps_over(manager: BlockManager) -> None:
    for step in list(manager._state.pool.steps):
        manager.end_step(step)


def grown(manager: BlockManager) -> None:
    """Tokens whose KV is not computed: whole blocks in `a` and `c`, `b` with a copy of its own."""
    manager.append_batch(["a", "b", "c"], [1, 1, 1, 1, 1, 1, 1], [1, 1, 5])


def same_ahead(manager: BlockManager) -> None:
    """Two that will compute the same, which nobody knows yet."""
    manager.admit("p", [7, 8, 7, 8])
    manager.admit("q", [7, 8, 7, 8])


def one_ahead(manager: BlockManager) -> None:
    """One of them has done so."""
    same_ahead(manager)
    manager.commit("p", 4)


def unpinned(manager: BlockManager) -> None:
    for tokens, namespace in (([1, 2, 3, 4], ""), ([1, 2, 3, 4], ""), ([5, 5], "other")):
        manager.unpin(tokens, namespace)


def blocks_ahead(manager: BlockManager) -> None:
    """Three whose next block is one that nobody knows; one of them is the first of its path."""
    manager.append_batch(["c", "d"], [1, 1, 2, 2], [2, 2])
    manager.reserve("h", 4)


def alone_in_its_namespace(manager: BlockManager) -> None:
    manager.admit("z", [1, 2, 3, 4, 5], "forgotten")


def last_of_its_namespace(manager: BlockManager) -> None:
    """A preempted request whose namespace nobody needs any more, and no free block."""
    alone_in_its_namespace(manager)
    manager.preempt("z")
    manager.reserve("c", 10)


def long_gone(manager: BlockManager) -> None:
    """Preempted; of what it will hit again, a window has released a part."""
    manager.append("c", [1] * 6)
    manager.commit("c", 12)
    manager.preempt("c")


def planned(manager: BlockManager) -> None:
    """Plans whose buffers are free again, and one that is still in use."""
    for _ in range(2):
        manager.append_batch(["c", "d"], [1, 2])
    manager.__dict__["kept"] = manager.append_batch(["a", "c"], [1, 2])


NO_TOKENS: Final[list[int]] = []

SCALARS: Final[tuple[tuple[str, Prepare, Operate], ...]] = (
    ("admit cold", nothing, lambda m: m.admit("x", [9, 8, 7])),
    ("admit hit", nothing, lambda m: m.admit("x", [1, 2, 3, 4, 5, 6, 7, 7])),
    ("admit idle hit, evicting", nothing, lambda m: m.admit("x", [8, 8, 8, 8, 9, 9, 9, 9, 9, 9])),
    ("admit held hit", nothing, lambda m: m.admit("x", [4, 4, 4, 4, 4])),
    ("admit new namespace", nothing, lambda m: m.admit("x", [1, 2, 3], "new")),
    ("admit new namespace, evicting", nothing, lambda m: m.admit("x", [1] * 12, "new")),
    ("admit known namespace", nothing, lambda m: m.admit("x", [5, 5, 5, 5, 5], "other")),
    ("admit not reading", nothing, lambda m: m.admit("x", [1, 2, 3], read_cache=False)),
    ("admit not writing", nothing, lambda m: m.admit("x", [1, 2, 3], write_cache=False)),
    ("admit in chunks", nothing, lambda m: m.admit("x", [1, 2, 3, 3], reserve=0)),
    ("admit refused", nothing, lambda m: m.admit("x", [9] * 20)),
    ("admit unservable", nothing, lambda m: m.admit("x", [9] * 100)),
    ("admit misuse", nothing, lambda m: m.admit("a", [9])),
    ("admit external", nothing, lambda m: m.admit_external("x", [1, 2, 3, 4, 9, 9, 9], 6)),
    ("admit external refused", nothing, lambda m: m.admit_external("x", [9] * 30, 20, reserve=1)),
    ("reserve a chunk", nothing, lambda m: m.reserve("h", 4)),
    ("reserve ahead, copying", nothing, lambda m: m.reserve("b", 11)),
    ("reserve nothing new", nothing, lambda m: m.reserve("a", 3)),
    ("reserve refused", nothing, lambda m: m.reserve("a", 60)),
    ("append in place", nothing, lambda m: m.append("h", [1])),
    ("append a block", nothing, lambda m: m.append("c", [1])),
    ("append copying", nothing, lambda m: m.append("b", [1])),
    ("append into a known block", nothing, lambda m: m.append("i", [1, 1])),
    ("append evicting", nothing, lambda m: m.append("c", [1] * 8)),
    ("append refused", nothing, lambda m: m.append("c", [1] * 50)),
    ("append misuse", nothing, lambda m: m.append("a", NO_TOKENS)),
    ("commit part of a block", nothing, lambda m: m.commit("h", 1)),
    ("commit two blocks", grown, lambda m: m.commit("c", 11)),
    ("commit a branch", grown, lambda m: m.commit("a", 8)),
    ("commit the same again", one_ahead, lambda m: m.commit("q", 4)),
    ("commit misuse", nothing, lambda m: m.commit("c", 12)),
    ("fork", nothing, lambda m: m.fork("c", "x")),
    ("fork lookahead", lambda m: m.reserve("c", 9), lambda m: m.fork("c", "x")),
    ("fork misuse", grown, lambda m: m.fork("c", "x")),
    ("truncate", nothing, lambda m: m.truncate("a", 5)),
    ("truncate to one", nothing, lambda m: m.truncate("c", 1)),
    ("truncate nothing", nothing, lambda m: m.truncate("c", 6)),
    ("free", nothing, lambda m: m.free("c")),
    ("free shared", nothing, lambda m: m.free("a")),
    ("free swapped", nothing, lambda m: m.free("e")),
    ("free preempted", nothing, lambda m: m.free("f")),
    ("free with no step", steps_over, lambda m: m.free("c")),
    ("preempt", nothing, lambda m: m.preempt("c")),
    ("preempt the last of a namespace", alone_in_its_namespace, lambda m: m.preempt("z")),
    ("preempt swap", nothing, lambda m: m.preempt("c", "swap")),
    ("preempt swap refused", lambda m: m.preempt("a", "swap"), lambda m: m.preempt("c", "swap")),
    ("resume recompute", nothing, lambda m: m.resume("f")),
    ("resume to a long hit", long_gone, lambda m: m.resume("c")),
    ("resume to a new namespace, evicting", last_of_its_namespace, lambda m: m.resume("z")),
    ("resume swap", nothing, lambda m: m.resume("e")),
    ("pin", nothing, lambda m: m.pin([8, 8, 8, 8, 8])),
    ("pin once more", nothing, lambda m: m.pin([1, 2, 3, 4])),
    ("pin held", nothing, lambda m: m.pin([4, 4])),
    ("unpin one of two", nothing, lambda m: m.unpin([1, 2, 3, 4])),
    ("unpin the last", nothing, lambda m: m.unpin([5, 5], "other")),
    ("unpin to idle", lambda m: m.free("d"), lambda m: m.unpin([5, 5], "other")),
    ("unpin misuse", nothing, lambda m: m.unpin([9])),
    ("evict two", nothing, lambda m: m.evict(2)),
    ("evict all", nothing, lambda m: m.evict(99)),
    ("reset refused", nothing, lambda m: m.reset_prefix_index()),
    ("reset", unpinned, lambda m: m.reset_prefix_index()),
    ("begin step", nothing, lambda m: m.begin_step(3)),
    ("end the older step", nothing, lambda m: m.end_step(1)),
    ("end the newer step", nothing, lambda m: m.end_step(2)),
    ("end both steps", lambda m: m.config.overlapped_steps and m.end_step(2), lambda m: m.end_step(1)),
    ("permute", steps_over, lambda m: m.permute(np.roll(np.arange(m.config.num_blocks), 5))),
    ("permute misuse", nothing, lambda m: m.permute(np.arange(m.config.num_blocks))),
    ("invalidate", nothing, lambda m: m.invalidate("a", 3)),
    ("invalidate everything", nothing, lambda m: m.invalidate("c", 0)),
    ("invalidate nothing", nothing, lambda m: m.invalidate("c", 6)),
    ("take events", nothing, lambda m: m.take_events()),
)
"""Each from `lively`: a name, what happens before, and the operation."""

BATCHES: Final[tuple[tuple[str, Prepare, Operate], ...]] = (
    ("append one each", nothing, lambda m: m.append_batch(["c", "d"], [1, 2])),
    ("append by rows", nothing, lambda m: m.append_batch(m.rows(["d", "c"]), [1, 2])),
    ("append spans", nothing, lambda m: m.append_batch(["c", "d"], [1, 2, 3, 4], [3, 1])),
    ("append ahead", lambda m: m.reserve("c", 9), lambda m: m.append_batch(["c", "d"], [1, 2, 3], [2, 1])),
    ("append rows alone", nothing, lambda m: m.append_batch(["c", "b", "i", "d"], [1, 2, 3, 4])),
    ("append one twice", nothing, lambda m: m.append_batch(["c", "c", "d"], [1, 2, 3])),
    ("append shared and short", nothing, lambda m: m.append_batch(["a", "b", "c"], [1] * 15, [5, 1, 9])),
    ("append some refused", nothing, lambda m: m.append_batch(["c", "d", "h"], [1] * 32, [1, 30, 1])),
    ("append all refused", nothing, lambda m: m.append_batch(["c", "d"], [1] * 70, [30, 40])),
    ("append to nobody", nothing, lambda m: m.append_batch(np.empty(0, np.int32), NO_TOKENS)),
    ("append misuse", nothing, lambda m: m.append_batch(["c", "e"], [1, 2])),
    ("append after plans", planned, lambda m: m.append_batch(["c", "d"], [1, 2])),
    ("reserve", nothing, lambda m: m.reserve_batch(["c", "h", "a"], [8, 3, 2])),
    ("reserve alone", nothing, lambda m: m.reserve_batch(["b", "i"], [9, 5])),
    ("reserve one twice", nothing, lambda m: m.reserve_batch(["c", "c"], [7, 9])),
    ("reserve some refused", nothing, lambda m: m.reserve_batch(["c", "d", "h"], [8, 2**31, 3])),
    ("commit", grown, lambda m: m.commit_batch(["a", "b", "c"], [8, 8, 11])),
    ("commit a block each", blocks_ahead, lambda m: m.commit_batch(["c", "h", "d"], [8, 4, 6])),
    ("commit part", grown, lambda m: m.commit_batch(["c", "a"], [7, 7])),
    ("commit the same", same_ahead, lambda m: m.commit_batch(["p", "q"], [4, 4])),
    ("commit the same block", same_ahead, lambda m: m.commit_batch(["p", "q"], [2, 2])),
    ("commit misuse", grown, lambda m: m.commit_batch(["c", "a"], [7, 6])),
    ("free some", nothing, lambda m: m.free_batch(["a", "b", "c"])),
    ("free preempted", nothing, lambda m: m.free_batch(["e", "f"])),
    ("free all", nothing, lambda m: m.free_batch(list("abcdefhi"))),
    ("free with no step", steps_over, lambda m: m.free_batch(["d", "a", "c"])),
    ("free misuse", nothing, lambda m: m.free_batch(["a", "a"])),
)

SHAPES: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "window": {"sliding_window": 3, "sink_tokens": 2, "max_rollback": 1},
    "groups": {"num_blocks": 36, "swap_blocks": 16, "groups": (CacheGroup(), CacheGroup(3, sink_tokens=1))},
    "collisions": {"hash_function": lambda parent, tokens: b"same"},
    "no cache": {"prefix_cache": False, "events": False, "max_requests": 7},
    "in order": {"overlapped_steps": False, "events": False},
}
"""Options under which the same operations run."""


def at_the_edge(requests: int = 16, ahead: int = 0) -> BlockManager:
    """All rows are taken, tables are as wide as can be, and most nodes are paths. `ahead`: so much the widest grows."""
    manager = BlockManager(128, 1, hash_seed=b"atomic", events=True, overlapped_steps=True)
    for i in range(requests - 1):
        computed(manager, i, [i, i])
    computed(manager, "long", [7] * 16)
    computed(manager, "gone", [7] * 16 + [8] * 12, keep=False)
    if ahead:
        manager.append("long", [3] * ahead)
    return manager


def many_tokens() -> BlockManager:
    """The next token is one too many for the rectangle."""
    manager = BlockManager(32, 16, hash_seed=b"atomic")
    computed(manager, "a", [1] * 256)
    computed(manager, "b", [2] * 32)
    return manager


def chained(idle: int, overlapped_steps: bool = False) -> BlockManager:
    """So many idle blocks, which are held if steps overlap; three used ones, and no free ones."""
    manager = BlockManager(3 + idle, 1, hash_seed=b"atomic", overlapped_steps=overlapped_steps)
    computed(manager, "a", [1, 1, 1])
    if idle:
        computed(manager, "b", [2] * idle)
    if overlapped_steps:
        manager.begin_step(1)
    manager.free_batch(["b"] * (idle > 0))
    return manager


def branching() -> BlockManager:
    """Five ways on from one path, all of one digest: a first child, a chain of idle others; and who makes a sixth."""
    manager = BlockManager(16, 1, hash_function=lambda parent, tokens: b"same", events=True)
    for token in range(5):
        computed(manager, token, [9, token, 0])
    manager.free_batch([2, 0, 4, 1])
    manager.admit("x", [9, 7, 7])
    return manager


EDGES: Final[tuple[tuple[str, Callable[[], BlockManager], Operate], ...]] = (
    ("more rows", at_the_edge, lambda m: m.admit("x", [1, 2])),
    ("more rows by a fork", at_the_edge, lambda m: m.fork("long", "x")),
    ("wider tables", at_the_edge, lambda m: m.append("long", [1])),
    ("wider tables in a batch", at_the_edge, lambda m: m.append_batch([0, "long"], [1, 1])),
    ("wider tables for a prompt", lambda: at_the_edge(3), lambda m: m.admit("x", [5] * 40)),
    ("more paths", lambda: at_the_edge(ahead=20), lambda m: m.commit("long", 36)),
    ("more paths for a batch", lambda: at_the_edge(ahead=20), lambda m: m.commit_batch(["long", 1], [36, 2])),
    ("more tokens", many_tokens, lambda m: m.append("a", [1])),
    ("more tokens in a batch", many_tokens, lambda m: m.append_batch(["a", "b"], [1, 1])),
    ("more tokens in turn", many_tokens, lambda m: m.append_batch(["a", "a"], [1, 1])),
    ("first to be idle", lambda: chained(0), lambda m: m.free("a")),
    ("last to be idle is hit", lambda: chained(1), lambda m: m.admit("x", [2, 9], reserve=1)),
    ("all that are idle are taken", lambda: chained(3), lambda m: m.admit("x", [9, 9, 9])),
    ("first to be held", lambda: chained(0, True), lambda m: m.free("a")),
    ("one of those held is hit", lambda: chained(3, True), lambda m: m.admit("x", [2, 9], reserve=1)),
    ("all that are held come free", lambda: chained(3, True), lambda m: m.end_step(1)),
    ("twins forgotten", branching, lambda m: m.evict(3)),
    ("twins forgotten to the last", branching, lambda m: m.evict(99)),
    ("another twin", branching, lambda m: m.commit("x", 3)),
)
