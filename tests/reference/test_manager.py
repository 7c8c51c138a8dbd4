"""Laws of the reference manager by itself: the ledger, refusals, and what each operation promises."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedkv.reference.manager import BlockManager
from pagedkv.spec.operations import Append, Commit, Free, Reserve
from pagedkv.spec.words import HOLE, Config, Misuse, Ok, Outcome, Reason, Refused, ceil_div

TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=9)
IDS = st.sampled_from("abc")
CALLS: st.SearchStrategy[tuple[Any, ...]] = st.one_of(
    st.tuples(st.just("admit"), IDS, TOKENS, st.sampled_from(["", "x"])),
    st.tuples(st.just("admit"), IDS, st.just([0, 1, 0, 1, 1, 0, 0]), st.just(""), st.sampled_from([0, 3, 7])),
    st.tuples(st.just("append"), IDS, TOKENS),
    st.tuples(st.just("commit"), IDS, st.integers(1, 16)),
    st.tuples(st.just("finish"), IDS),
    st.tuples(st.just("reserve"), IDS, st.integers(1, 20)),
    st.tuples(st.just("fork"), IDS, IDS),
    st.tuples(st.just("truncate"), IDS, st.integers(1, 12)),
    st.tuples(st.just("free"), IDS),
    st.tuples(st.just("preempt"), IDS, st.sampled_from(["recompute", "swap"])),
    st.tuples(st.just("resume"), IDS),
    st.tuples(st.sampled_from(["pin", "unpin", "lookup"]), st.just([0, 1, 0, 1, 1, 0, 0])),
    st.tuples(st.just("evict"), st.integers(0, 3)),
    st.tuples(st.just("reset_prefix_index")),
    st.tuples(st.sampled_from(["begin_step", "end_step"]), st.integers(0, 1)),
    st.tuples(st.just("permute"), st.permutations(range(6))),
    st.tuples(st.just("batch"), st.lists(st.builds(Append, IDS, TOKENS.map(tuple)), min_size=1, max_size=3)),
    st.tuples(st.just("batch"), st.lists(st.builds(Free, IDS), min_size=1, max_size=3)),
)


def config_of(publish: Literal["commit", "schedule"], dedup: bool, **options: Any) -> Config:
    """Blocks that are published before they are written cannot be compared."""
    return Config(publish=publish, dedup=dedup and publish == "commit", **options)


CONFIGS = st.builds(
    config_of,
    num_blocks=st.just(6),
    block_size=st.integers(1, 3),
    prefix_cache=st.booleans(),
    sliding_window=st.sampled_from([None, 2, 4]),
    sink_tokens=st.sampled_from([0, 0, 1, 3]),
    max_rollback=st.sampled_from([0, 2]),
    swap_blocks=st.sampled_from([0, 4]),
    max_requests=st.sampled_from([None, 2]),
    overlapped_steps=st.booleans(),
    publish=st.sampled_from(["commit", "schedule"]),
    dedup=st.booleans(),
)


def run(manager: BlockManager, call: tuple[Any, ...]) -> Outcome | list[Outcome] | None:
    """The outcome; None: misuse. "finish" commits whatever is left."""
    name, *arguments = call
    if name == "finish":
        lengths = manager.observe().lengths.get(arguments[0])
        name, arguments = "commit", [arguments[0], min(lengths.length, lengths.reserved) if lengths else 0]
    operation: Callable[..., Outcome | list[Outcome]] = getattr(manager, name)
    try:
        return operation(*arguments)
    except Misuse:
        return None


def check_ledger(manager: BlockManager) -> None:
    """The invariants that can be seen from outside, and those of the free list."""
    seen, pool = manager.observe(), manager.pool
    occurrences = Counter(b for table in seen.tables.values() for b in table if b != HOLE)
    occurrences.update(b for stack in manager.pins.values() for blocks in stack for b in blocks)
    assert seen.references == dict(occurrences)
    assert seen.index is not None
    assert len(set(pool.free)) == len(pool.free)
    idle = {block for block in seen.index if block not in occurrences}
    free = set(range(pool.num_blocks)) - set(occurrences) - idle
    assert set(pool.index.idle) == idle
    assert set(pool.free) == free - set(pool.held)
    assert seen.available_blocks == len((free | idle) - set(pool.held))
    assert not set(pool.held) & set(occurrences)
    size = manager.config.block_size
    for request, lengths in seen.lengths.items():
        assert lengths.computed <= min(lengths.reserved, lengths.length)
        if lengths.resident:
            table = [block for block in seen.tables[request] if block != HOLE]
            assert len(set(table)) == len(table)
            assert len(seen.tables[request]) == ceil_div(lengths.reserved, size)
    assert len(set(seen.index.values())) == len(seen.index)
    assert all(identity.tokens and len(identity.tokens) % size == 0 for identity in seen.index.values())
    assert {b for blocks in pool.index.children.values() for b in blocks} <= set(seen.index)
    assert pool.index.unwritten <= set(occurrences)
    saved = [block for entry in manager.requests.values() for block in entry.saved]
    assert sorted(saved + manager.free_swap) == list(range(manager.config.swap_blocks))


def drain(manager: BlockManager) -> None:
    for step in list(manager.pool.steps):
        manager.end_step(step)
    for request in list(manager.observe().lengths):
        manager.free(request)
    for namespace, path in [key for key, stack in manager.pins.items() for _ in stack]:
        manager.unpin(path, namespace)


@settings(max_examples=150, deadline=None)
@given(CONFIGS, st.lists(CALLS, max_size=40))
def test_ledger_refusal_and_drain(config: Config, calls: list[tuple[Any, ...]]) -> None:
    """The books balance after every call; refused and misused calls change nothing; in the end every block is back."""
    manager = BlockManager(config)
    for call in calls:
        before, twin = manager.observe(), manager.copy()
        outcome = run(manager, call)
        check_ledger(manager)
        if outcome is None or isinstance(outcome, Refused):
            assert manager.observe() == before
            assert manager.pool.index.idle == twin.pool.index.idle, "recency moved"
            assert list(manager.pool.index.idle) == list(twin.pool.index.idle), "recency moved"
            assert manager.pool.free == twin.pool.free
        assert twin.observe() == before, "a copy shares something mutable"
        assert run(twin, call) == outcome, "a copy answers differently"
    drain(manager)
    check_ledger(manager)
    assert manager.observe().available_blocks == config.num_blocks
    assert isinstance(manager.admit("z", [7] * (config.num_blocks * config.block_size)), Ok)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(IDS, TOKENS.map(tuple)), min_size=1, max_size=5), st.integers(3, 9))
def test_batch_equals_its_rows(rows: list[tuple[str, tuple[int, ...]]], num_blocks: int) -> None:
    """A batch answers and leaves the pool as its rows do one after another."""
    manager = BlockManager(Config(num_blocks=num_blocks, block_size=2))
    manager.admit("a", [1, 2, 3])
    manager.commit("a", 3)
    manager.fork("a", "b")
    manager.fork("a", "c")
    scalar = manager.copy()
    appends = [Append(request, tokens) for request, tokens in rows]
    assert list(manager.batch(appends)) == [scalar.append(row.request, row.tokens) for row in appends]
    assert manager.observe() == scalar.observe()


def test_misuse_in_a_later_row_undoes_the_batch() -> None:
    manager = BlockManager(Config(num_blocks=8, block_size=2))
    manager.admit("a", [1, 2, 3])
    before = manager.observe()
    for rows in (
        [Append("a", (1,)), Append("nobody", (1,))],
        [Free("a"), Free("a")],
        [Commit("a", 3), Commit("a", 2)],
        [Reserve("a", 9), Reserve("a", 0)],
        [Append("a", (1,)), Free("a")],
        [],
    ):
        with pytest.raises(Misuse):
            manager.batch(rows)  # type: ignore[arg-type]  # lists of one kind each, told apart at run time
        assert manager.observe() == before


def committed(manager: BlockManager, request: str, tokens: list[int], namespace: str = "") -> None:
    assert isinstance(manager.admit(request, tokens, namespace), Ok)
    manager.commit(request, len(tokens))


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (("admit", "a", [1]), "request"),
        (("admit", "gone", [1]), "request"),
        (("admit", "n", []), "tokens"),
        (("admit", "n", [1, -1]), "tokens[1]"),
        (("admit", "n", [True]), "tokens[0]"),
        (("append", "a", [1, 2**31]), "tokens[1]"),
        (("admit", "n", 5), "tokens"),
        (("admit", "n", [1], []), "namespace"),
        (("admit", "n", [1], "", 2), "reserve"),
        (("admit", [], [1]), "request"),
        (("append", "nobody", [1]), "request"),
        (("append", "gone", [1]), "request"),
        (("append", "a", []), "tokens"),
        (("reserve", "a", 0), "length"),
        (("commit", "a", 2), "computed"),
        (("commit", "a", 4), "computed"),
        (("fork", "a", "gone"), "child"),
        (("fork", "late", "n"), "parent"),
        (("fork", "gone", "n"), "parent"),
        (("truncate", "a", 4), "length"),
        (("truncate", "a", 0), "length"),
        (("free", "nobody"), "request"),
        (("preempt", "a", "disk"), "mode"),
        (("preempt", "a", np.array([1, 2])), "mode"),
        (("preempt", "gone"), "request"),
        (("resume", "a"), "request"),
        (("unpin", [1, 2]), "tokens"),
        (("evict", -1), "blocks"),
        (("begin_step", 1), "step"),
        (("end_step", 1), "step"),
        (("permute", [0] * 8), "new_block"),
        (("permute", [0, 1]), "new_block"),
        (("permute", 5), "new_block"),
        (("permute", [*range(7), 8]), "new_block[7]"),
        (("batch", ["free"]), "rows"),
        (("batch", 5), "rows"),
        (("batch", [Append("a", ())]), "tokens"),
        (("lookup", [1.5]), "tokens[0]"),
        (("pin", [1], {}), "namespace"),
    ],
)
def test_misuse_names_the_argument_and_changes_nothing(call: tuple[Any, ...], argument: str) -> None:
    manager = BlockManager(Config(num_blocks=8, block_size=2))
    committed(manager, "a", [1, 2, 3])
    manager.admit("late", [5])
    manager.admit("gone", [4])
    manager.preempt("gone")
    before = manager.observe()
    with pytest.raises(Misuse) as caught:
        getattr(manager, call[0])(*call[1:])
    assert caught.value.argument == argument
    assert manager.observe() == before


def test_a_manager_is_made_with_a_config() -> None:
    with pytest.raises(Misuse, match="config=None"):
        BlockManager(None)  # type: ignore[arg-type]  # on purpose


def test_what_never_fits_is_refused_however_much_it_is() -> None:
    manager = BlockManager(Config(num_blocks=8, block_size=2))
    manager.admit("a", [2**31 - 1])
    assert manager.reserve("a", 10**30) == Refused(Reason.UNSERVABLE)


def test_observing_some_requests_shows_only_them() -> None:
    manager = BlockManager(Config(num_blocks=8, block_size=2))
    committed(manager, "a", [1, 2, 3])
    committed(manager, "b", [4])
    seen = manager.observe(["b", "nobody"])
    assert set(seen.tables) == set(seen.lengths) == {"b"}
    assert (seen.references, seen.index, seen.available_blocks) == (None, None, 5)
