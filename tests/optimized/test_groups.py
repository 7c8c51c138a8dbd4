"""Cache groups: one pool, tables of its own for each group, and hits that are good for all of them."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from pagedkv.optimized.groups import CacheGroup
from pagedkv.optimized.subject import OptimizedSubject
from pagedkv.spec import (
    Admit, Append, Config, Identity, Lookup, Misuse, Ok, Pin, Reason, Refused, Reserve, Resume,
)  # fmt: skip

from tests.optimized.content_shadow import Shadow
from tests.optimized.feature_programs import (
    FULL, SHORT, SINKS, WINDOW, AdmitApart, AdmitExternal, Feature, Featured, Invalidate, drain, entries, forget,
    operation, run, tables,
)  # fmt: skip
from tests.optimized.manager_programs import CONFIGS, view

GROUPS = st.sampled_from(
    [
        (FULL, WINDOW),
        (WINDOW, FULL),
        (FULL, SINKS),
        (SHORT, SINKS),
        (FULL, FULL),
        (FULL, WINDOW, SHORT),
        (SINKS, WINDOW, FULL),
    ]
)
SEEDS = st.integers(0, 2**32)
MORE = (AdmitApart, AdmitExternal, Invalidate)


def pools(groups: int) -> st.SearchStrategy[Config]:
    """Pools that are mostly short for requests of so many groups."""
    return st.builds(
        Config,
        num_blocks=st.integers(1, 7 * groups),
        block_size=st.integers(1, 4),
        prefix_cache=st.sampled_from([True, True, True, False]),
        max_rollback=st.integers(0, 2),
        swap_blocks=st.integers(0, 8),
        max_requests=st.sampled_from([None, None, 3]),
        overlapped_steps=st.booleans(),
    )


@given(config=CONFIGS, seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_one_group_is_a_manager_without_groups(config: Config, seed: int) -> None:
    """The same programs, the same answers, the same state, block by block."""
    grouped = Featured(config, groups=(CacheGroup(config.sliding_window, config.sink_tokens),), events=True)
    plain, rng = Featured(config, events=True), random.Random(seed)
    for _ in range(40):
        op = operation(rng, plain, MORE)
        ours, theirs = run(grouped, op), run(plain, op)
        assert ours == theirs or str(ours) == str(theirs)  # misuse has no equality of its own
        assert grouped.snapshot() == plain.snapshot()
        assert grouped.stats() == plain.stats()
    assert grouped.take_events() == plain.take_events()


@given(groups=GROUPS, data=st.data(), seed=SEEDS)
@settings(max_examples=120, deadline=None)
def test_every_request_reads_its_own_kv_in_every_group(
    groups: tuple[CacheGroup, ...], data: st.DataObject, seed: int
) -> None:
    """`Shadow.look` after each operation: contents, holes, no block in two groups; then everything drains."""
    config, rng = data.draw(pools(len(groups))), random.Random(seed)
    shadow = Shadow(Featured(config, groups=groups))
    for _ in range(40):
        op = operation(rng, shadow.manager, MORE)
        expected = hit_of(shadow.manager, op)
        answer = shadow.do(op)
        if expected is not None and not isinstance(answer, Misuse) and isinstance(answer[0], Ok):
            assert answer[0].cached_tokens == expected
        shadow.manager.check()
    drain(shadow.manager)


def hit_of(manager: OptimizedSubject, op: Feature) -> int | None:
    """Positions that this operation has to find, tried for every length; None if it looks for nothing."""
    match op:
        case Admit(_, tokens, namespace):
            return longest(manager, namespace, tokens, len(tokens) - 1)
        case AdmitExternal(_, tokens):
            return longest(manager, "", tokens, len(tokens) - 1)
        case AdmitApart(_, tokens, reads):
            return longest(manager, "", tokens, len(tokens) - 1) if reads else 0
        case Lookup(tokens, namespace) | Pin(tokens, namespace):
            return longest(manager, namespace, tokens, len(tokens))
        case Resume(request) if request in (known := view(manager).requests):
            again, rows = known[request], manager._state.rows
            if again.residency == "recompute" and rows.known(rows.row_of[request]).reads:
                return longest(manager, again.namespace, again.tokens, again.length - 1)
            return 0
    return None


def longest(manager: OptimizedSubject, namespace: object, tokens: tuple[int, ...], most: int) -> int:
    """The longest prefix all of whose blocks that a query after it may still see are found, in every group."""
    bs, found = manager.config.block_size, entries(manager)

    def good(length: int) -> bool:
        wanted = [(g, e) for g in range(len(manager.groups)) for e in range(bs, length + 1, bs)]
        return all(
            dead(manager, group, length, end) or (group, Identity(namespace, tokens[:end])) in found
            for group, end in wanted
        )

    return max(length for length in range(0, most + 1, bs) if good(length)) if manager.config.prefix_cache else 0


def dead(manager: OptimizedSubject, group: int, computed: int, end: int) -> bool:
    """No query from `computed` on, nor after a rollback, sees anything of the block that ends at `end`."""
    seen = manager.groups[group]
    if seen.sliding_window is None:
        return False
    out_of_sight = end <= computed + 1 - seen.sliding_window - manager.config.max_rollback
    return out_of_sight and end - manager.config.block_size >= seen.sink_tokens


KINDS = st.builds(CacheGroup, st.sampled_from([None, 1, 2, 3, 5, 8]), st.integers(0, 5))


@given(
    groups=st.lists(KINDS, min_size=2, max_size=3).filter(lambda kinds: any(g.sliding_window != 1 for g in kinds)),
    block_size=st.integers(1, 3),
    rollback=st.integers(0, 2),
    forgotten=st.sets(st.integers(0, 59), max_size=6),
)
@settings(max_examples=200, deadline=None)
def test_whatever_is_missing_the_hit_is_the_longest_that_is_good_for_all(
    groups: list[CacheGroup], block_size: int, rollback: int, forgotten: set[int]
) -> None:
    """A prompt is known whole in all groups, but for any set of blocks; and is asked for at every length. Some group
    looks at the last block: of a prefix at which nobody looks nothing has to be found."""
    manager = Featured(Config(60, block_size, max_rollback=rollback), groups=groups)
    tokens = tuple(range(8 * block_size + 1))
    for count in range(block_size, len(tokens), block_size):  # so that a window loses nothing of it
        assert isinstance(manager.admit("a", tokens[:count]), Ok)
        manager.commit("a", count)
        manager.free("a")
    known = sorted(entries(manager).values())
    forget(manager, {known[i % len(known)] for i in forgotten} - {known[0]})
    for count in range(block_size, len(tokens) + 1):
        assert manager.lookup(tokens[:count]).cached_tokens == longest(manager, "", tokens, count)
        twin = manager.copy()
        assert twin.admit("b", tokens[:count]) == Ok(cached_tokens=longest(manager, "", tokens, count - 1))
        twin.check()


@given(groups=GROUPS, data=st.data(), seed=SEEDS)
@settings(max_examples=80, deadline=None)
def test_refused_exactly_when_more_is_needed_than_is_available(
    groups: tuple[CacheGroup, ...], data: st.DataObject, seed: int
) -> None:
    """And what is carried out lowers availability by the need, counted from tables, references and entries."""
    config, rng = data.draw(pools(len(groups))), random.Random(seed)
    manager = Featured(config, groups=groups)
    for _ in range(60):
        op = operation(rng, manager)
        need, available, before = need_of(manager, op), manager.available_blocks, manager.snapshot()
        answers = run(manager, op)
        if need is None or isinstance(answers, Misuse):
            continue
        match answers[0]:
            case Ok():
                assert manager.available_blocks == available - need
            case Refused(Reason.CAPACITY | Reason.IN_FLIGHT):
                assert need > available
                assert manager.snapshot() == before
            case Refused(reason):
                assert reason in (Reason.UNSERVABLE, Reason.MAX_REQUESTS)


def need_of(manager: OptimizedSubject, op: Feature) -> int | None:
    """Rule 1 of the contract, summed over the groups."""
    known, bs, references = view(manager).requests, manager.config.block_size, manager.snapshot().references
    assert references is not None
    match op:
        case Append(request, tokens) if request in known:
            end = known[request].length + len(tokens)
        case Reserve(request, length) if request in known:
            end = length
        case Admit(_, tokens, namespace, reserve):
            hit = longest(manager, namespace, tokens, len(tokens) - 1)
            count, found = max(hit, len(tokens) if reserve is None else reserve), entries(manager)
            mine = set(references) | set(manager._state.pool.held_blocks().tolist())
            return sum(
                not (end <= hit and dead(manager, group, hit, end))
                and not (end <= hit and found[group, Identity(namespace, tokens[:end])] in mine)
                for group in range(len(manager.groups))
                for end in range(bs, -(-count // bs) * bs + 1, bs)
            )
        case _:
            return None
    start = min(known[request].reserved, known[request].length)
    if known[request].residency != "resident" or end <= start:
        return None
    need = 0
    for table in tables(manager, request):
        need += max(0, -(-end // bs) - len(table))
        need += start // bs < len(table) and references[table[start // bs]] > 1
    return need
