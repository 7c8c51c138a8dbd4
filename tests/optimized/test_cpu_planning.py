"""The plan of a call on the CPU: all that is seen is computed once, and no table is read but where it is known."""

from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagedkv.optimized.attention.arguments import AttentionCall, Mask
from pagedkv.optimized.cpu.backend import planned
from pagedkv.optimized.cpu.planning import MOST_ROWS, FEW, begin_groups, visible_bounds
from pagedkv.optimized.cpu.products import whole_rows
from pagedkv.optimized.cpu.work import Item
from pagedkv.spec.masks import row_positions, seen

HEADS = 3


class Batch(NamedTuple):
    """Lengths and query rows of requests, of which some begin with the same blocks, and what a row sees."""

    pairs: tuple[tuple[int, int], ...]
    shared: tuple[tuple[int, int], ...] = ()
    """(request, blocks): so many blocks are those of the first request."""
    block_size: int = 4
    split: int = 16
    group: int = 2
    window: int | None = None
    causal: bool = True
    threads: int = 1

    def tables(self) -> torch.Tensor:
        width = max((-(-length // self.block_size) for length, _ in self.pairs), default=0)
        tables = torch.arange(len(self.pairs) * width, dtype=torch.int32).view(len(self.pairs), width)
        for request, blocks in self.shared if self.pairs else ():
            tables[request % len(tables), :blocks] = tables[0, :blocks]
        return tables

    def plan(self) -> tuple[list[Item], Any, Any, Any, int]:
        """Items, tokens, bounds, parts, records."""
        lengths, rows = (np.array([pair[i] for pair in self.pairs], np.int64) for i in range(2))
        ends = np.concatenate([[0], rows.cumsum()]).astype(np.int64)
        total = int(ends[-1])
        bounds, parts = np.full((total, 3), -1, np.int64), np.full((total, 3), -1, np.int64)
        visible_bounds(lengths, ends, self.causal, self.window or 0, bounds)
        query, cache = torch.zeros(total, HEADS * self.group, 8), torch.zeros(1, self.block_size, HEADS, 8)
        integers = torch.from_numpy(lengths).int()
        mask = Mask(1.0, self.causal, self.window, 0.0, None, None)
        call = AttentionCall(query, cache, cache, self.tables(), integers, None, mask, query, query, self.split)
        items, tokens, records = planned(call, ends, bounds, parts, self.threads)
        return [Item(*map(int, item)) for item in items], tokens, bounds, parts, records


lengths = st.integers(0, 70) | st.sampled_from((15, 16, 17, 31, 32, 33, 48))
batches = st.builds(
    Batch,
    st.lists(st.tuples(lengths, st.integers(0, FEW + 8) | st.just(1)), max_size=6).map(tuple),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 18)), max_size=5).map(tuple),
    st.sampled_from((1, 3, 4, 16, 24)),
    st.sampled_from((16, 32, 48)),
    st.sampled_from((1, 2, 5, 40, 70)),
    st.none() | st.integers(1, 40),
    st.booleans(),
    st.integers(1, 9),
)


@given(batches)
def test_each_token_sees_what_the_specification_says(batch: Batch) -> None:
    bounds, token = batch.plan()[2], 0
    for length, rows in batch.pairs:
        for position in row_positions(rows, length):
            visible = seen(position, length, causal=batch.causal, window=batch.window)
            assert (bounds[token, 0], bounds[token, 1]) == (visible.start, visible.stop) or not visible
            assert (bounds[token, 0] < bounds[token, 1]) == bool(visible)
            assert bounds[token, 2] == position
            token += 1


@given(batches)
def test_items_cover_what_is_seen_once_from_the_right_tables(batch: Batch) -> None:
    items, tokens, bounds, parts, _ = batch.plan()
    tables, size = batch.tables(), batch.block_size
    owners = [request for request, (_, rows) in enumerate(batch.pairs) for _ in range(rows)]
    count = np.zeros((len(bounds), HEADS, 128), np.int64)
    for item in items:
        assert item.first_token < item.end_token
        assert item.grid <= item.first < item.end
        assert (item.first - item.grid) < batch.split or batch.pairs[item.request][1] > FEW
        for token in tokens[item.first_token : item.end_token]:
            first, end = max(item.first, bounds[token, 0]), min(item.end, bounds[token, 1])
            assert first < end
            blocks = slice(first // size, -(-end // size))
            assert torch.equal(tables[owners[token], blocks], tables[item.request, blocks])
            count[token, item.first_head : item.end_head, first:end] += 1
            if parts[token, 2] > 1:
                assert item.grid == item.span * batch.split
                assert 0 <= item.span - parts[token, 1] < parts[token, 2]
        lowest = min(bounds[token, 0] for token in tokens[item.first_token : item.end_token])
        assert item.first >= lowest  # nothing is looked up that nobody sees
        assert item.end <= max(bounds[token, 1] for token in tokens[item.first_token : item.end_token])
    for token, (first, end, _) in enumerate(bounds):
        expected = (np.arange(128) >= first) & (np.arange(128) < end)
        assert (count[token] == expected).all()


@given(batches)
def test_items_fit_in_scratch_and_records_lie_apart(batch: Batch) -> None:
    items, _, _, parts, records = batch.plan()
    for item in items:
        rows = whole_rows((item.end_token - item.first_token) * batch.group)
        assert rows * (item.end_head - item.first_head) <= max(MOST_ROWS, whole_rows(batch.group))
    kept = parts[parts[:, 2] > 1]
    places = [range(first, first + count * HEADS * batch.group) for first, _, count in kept]
    assert sorted(place for each in places for place in each) == list(range(records))


def test_what_begins_alike_is_read_once() -> None:
    """Of 90 blocks 80 are those of all: their spans are one item, for all requests, and few lie elsewhere."""
    alone = Batch(((90 * 4, 1),) * 5)
    together = alone._replace(shared=tuple((request, 80) for request in range(5)))
    whole, rest = 80 * 4 // 16, -(-90 * 4 // 16) - 80 * 4 // 16
    assert len(alone.plan()[0]) == 5 * (whole + rest)
    assert len(together.plan()[0]) == whole + 5 * rest


def test_so_is_what_only_some_have_in_common() -> None:
    """A tree: two of the requests go on alike where the others have parted."""
    batch = Batch(((16 * 4, 1),) * 4, block_size=16)
    tables = torch.tensor([[0, 1, 2, 3], [0, 1, 2, 7], [0, 5, 6, 8], [9, 1, 2, 3]], dtype=torch.int32)

    class Tree(Batch):
        def tables(self) -> torch.Tensor:
            return tables

    spans = [(item.request, item.span, item.end_token - item.first_token) for item in Tree(*batch).plan()[0]]
    shared = [(request, span, count) for request, span, count in spans if count > 1]
    assert shared == [(0, 0, 3), (0, 1, 2), (0, 2, 2)]
    assert sum(count for _, _, count in spans) == 16


def test_who_begins_otherwise_is_not_compared() -> None:
    """Requests are compared in buckets, of which a batch where nobody shares a whole span has one for each; also where
    all begin with the same few blocks, as of a short system prompt."""
    requests = 64
    ends, lists = np.arange(requests + 1), np.full((requests, 5), -1, np.int64)
    bounds = np.tile(np.array([0, 16, 15]), (requests, 1))
    tables = torch.zeros(requests, 4, dtype=torch.int32)
    tables[:, 3] = torch.arange(requests)
    leader, leaders = begin_groups(bounds, ends, lists, 16, (tables.data_ptr(), 16, 4)), []
    while leader >= 0:
        assert lists[leader, 0] == -1  # alone
        leaders.append(leader)
        leader = lists[leader, 1]
    assert sorted(leaders) == list(range(requests))
