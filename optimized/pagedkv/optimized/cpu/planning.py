"""What is to be done for a call, as items: by loops over requests, before anything is computed.

A request of few rows is cut into spans of fixed length, so that a long one keeps all threads busy; one of many rows
into blocks of rows. Where the tables of requests begin with the same blocks, a span that lies in these is one item for
all: requests are grouped by one block of their first spans, and span by span a group is parted into those that go on
alike, until each is alone.

What the loops pass on, all int64:

* `ends` (num_requests + 1,): where the query tokens of each request begin, as cu_seqlens_q;
* `bounds` (total_q, 3): of each token the first position that it sees, the one behind the last, and its own;
* `parts` (total_q, 3): the number of its first record among those kept, its first span, and how many spans it has;
* `lists` (num_requests + 1, 5): see `refine`;
* `table`: address of the block tables, bytes of a row, block size.
"""

from typing import Any, Final, NamedTuple

from pagedkv.optimized.cpu.compiler import compiled
from pagedkv.optimized.cpu.products import whole_rows
from pagedkv.optimized.cpu.simd import load_int32

FEW: Final = 16
"""Query rows of a request, at the most, that are computed span by span."""
MOST_ROWS: Final = 64
"""Query rows of all heads that an item has, at the most, unless one token has more."""


class Plan(NamedTuple):
    """What is being planned; arrays without room are not written, so that what there will be can be counted."""

    items: Any
    """(n, 9) int64: see `pagedkv.optimized.cpu.work.Item`."""
    tokens: Any
    """Query tokens as items list them, int64."""
    counts: Any
    """How many items and tokens there are, int64."""
    num_kv_heads: int
    group: int
    most_heads: int
    """KV heads of an item, at the most."""


@compiled
def visible_bounds(lengths: Any, ends: Any, causal: bool, window: int, bounds: Any) -> None:
    """bounds[token]: the first position seen, the one behind the last, and the token's own. `window` 0: none."""
    for r in range(len(lengths)):
        rows = ends[r + 1] - ends[r]
        for j in range(rows):
            own = lengths[r] - rows + j
            first, end = 0, own + 1 if causal else lengths[r]
            if window > 0:
                first, end = max(0, own - window + 1), min(end, own + window)
            token = ends[r] + j
            bounds[token, 0], bounds[token, 1], bounds[token, 2] = first, max(first, end), own


@compiled
def same_blocks(tables: int, row: int, a: int, b: int, first: int, end: int) -> bool:
    """Entries first to end - 1 of two requests' tables agree; the last are looked at first, as they tell most apart."""
    i = end - 1
    while i >= first and load_int32(tables + a * row + 4 * i) == load_int32(tables + b * row + 4 * i):
        i -= 1
    return i < first


@compiled
def add(plan: Any, request: int, grid: int, first: int, end: int, span: int, listed: int) -> None:
    """Items for the tokens listed since `listed`, of few heads each if they are many; without room they are counted."""
    rows = whole_rows((plan.counts[1] - listed) * plan.group)
    if rows == 0:
        return
    chunk = max(1, min(plan.most_heads, MOST_ROWS // rows))
    for head in range(0, plan.num_kv_heads, chunk):
        if plan.counts[0] < len(plan.items):
            item = plan.items[plan.counts[0]]
            item[0], item[1], item[2], item[3], item[4], item[5] = request, listed, plan.counts[1], grid, first, end
            item[6], item[7], item[8] = head, min(plan.num_kv_heads, head + chunk), span
        plan.counts[0] += 1


@compiled
def list_token(plan: Any, token: int) -> None:
    """List a token for the next item."""
    if plan.counts[1] < len(plan.tokens):
        plan.tokens[plan.counts[1]] = token
    plan.counts[1] += 1


@compiled
def is_full(plan: Any, listed: int) -> bool:
    """Tokens are listed since `listed`, and one more would be too many for an item."""
    return plan.counts[1] > listed and (plan.counts[1] - listed + 1) * plan.group > MOST_ROWS


@compiled
def add_rows(plan: Any, bounds: Any, request: int, begin: int, stop: int, span: int, first: int, end: int) -> None:
    """Items for those of the tokens begin..stop-1 of a request that see any of the positions first..end-1."""
    listed, low, high = plan.counts[1], end, first
    for token in range(begin, stop):
        if bounds[token, 0] < end and bounds[token, 1] > first and bounds[token, 0] < bounds[token, 1]:
            if is_full(plan, listed):
                add(plan, request, first, low, high, span, listed)
                listed, low, high = plan.counts[1], end, first
            low, high = min(low, max(first, bounds[token, 0])), max(high, min(end, bounds[token, 1]))
            list_token(plan, token)
    add(plan, request, first, low, high, span, listed)


@compiled
def is_whole(bounds: Any, begin: int, stop: int, first: int, end: int) -> bool:
    """All tokens of a request, of which there are few, see all of these positions."""
    token = begin
    while token < stop and bounds[token, 0] <= first and bounds[token, 1] >= end:
        token += 1
    return token == stop and 0 < stop - begin <= FEW


@compiled
def add_shared(plan: Any, bounds: Any, ends: Any, lists: Any, leader: int, span: int, split: int) -> None:
    """Items for all requests of a group, over a span that they share."""
    listed, r, first = plan.counts[1], leader, span * split
    while r >= 0:
        for token in range(ends[r], ends[r + 1]):
            if is_full(plan, listed):
                add(plan, leader, first, first, first + split, span, listed)
                listed = plan.counts[1]
            list_token(plan, token)
        lists[r, 3] = span + 1
        r = lists[r, 0]
    add(plan, leader, first, first, first + split, span, listed)


@compiled
def refine(ends: Any, bounds: Any, lists: Any, start: int, span: int, split: int, table: Any) -> int:
    """Part a group into those whose tables go on alike over a span; returns the leader of the first such group, or -1.

    `lists`: of each request the next one of its group, the leader of the next group, the last of its group (these two
    of leaders alone), and from which span on it is alone. Column 4 is another list: who is first in each bucket of
    last blocks of a first span, while groups begin.
    """
    tables, row, size = table
    first, end, found, r = span * split, (span + 1) * split, -1, start
    while r >= 0:
        following = lists[r, 0]
        lists[r, 0], lists[r, 1], lists[r, 2] = -1, -1, r
        if is_whole(bounds, ends[r], ends[r + 1], first, end):
            q, before = found, -1
            while q >= 0 and not same_blocks(tables, row, q, r, first // size, (end + size - 1) // size):
                q, before = lists[q, 1], q
            if q >= 0:
                lists[lists[q, 2], 0] = r
                lists[q, 2] = r
            elif before >= 0:
                lists[before, 1] = r
            else:
                found = r
        r = following
    return found


@compiled
def begin_groups(bounds: Any, ends: Any, lists: Any, split: int, table: Any) -> int:
    """Groups of requests with a first span to share whose last blocks may be the same; returns the leader of one."""
    tables, row, size = table
    requests, groups = len(ends) - 1, -1
    for r in range(requests):
        lists[r, 3], lists[r, 4] = 0, -1
    for r in range(requests - 1, -1, -1):
        if is_whole(bounds, ends[r], ends[r + 1], 0, split):
            bucket = load_int32(tables + r * row + 4 * ((split - 1) // size)) % requests
            lists[r, 0], lists[bucket, 4] = lists[bucket, 4], r
    for bucket in range(requests - 1, -1, -1):
        if lists[bucket, 4] >= 0:
            lists[lists[bucket, 4], 1] = groups
            groups = lists[bucket, 4]
    return groups


@compiled
def share(plan: Any, bounds: Any, ends: Any, lists: Any, split: int, table: Any) -> None:
    """Items for spans that several requests share, from the beginning of their tables on."""
    groups, span = begin_groups(bounds, ends, lists, split, table), 0
    while groups >= 0:
        kept, leader = -1, groups
        while leader >= 0:
            later = lists[leader, 1]
            part = refine(ends, bounds, lists, leader, span, split, table)
            while part >= 0:
                other = lists[part, 1]
                if lists[part, 0] >= 0:
                    add_shared(plan, bounds, ends, lists, part, span, split)
                    lists[part, 1] = kept
                    kept = part
                part = other
            leader = later
        groups, span = kept, span + 1


@compiled
def plan_work(plan: Any, bounds: Any, ends: Any, parts: Any, lists: Any, split: int, table: Any) -> int:
    """All items; fills `parts`, and returns how many records are to be kept."""
    plan.counts[0] = plan.counts[1] = 0
    share(plan, bounds, ends, lists, split, table)
    records = 0
    for r in range(len(ends) - 1):
        begin, stop, low, high = ends[r], ends[r + 1], 2**62, 0
        few = stop - begin <= FEW
        for token in range(begin, stop):
            first, end = bounds[token, 0], bounds[token, 1]
            parts[token, 0] = parts[token, 1] = parts[token, 2] = 0
            if first < end:
                low, high = min(low, first), max(high, end)
                parts[token, 1] = first // split if few else 0
                parts[token, 2] = (end - 1) // split - first // split + 1 if few else 1
                if parts[token, 2] > 1:
                    parts[token, 0] = records
                    records += parts[token, 2] * plan.num_kv_heads * plan.group
        if low < high and few:
            for span in range(max(low // split, lists[r, 3]), (high - 1) // split + 1):
                add_rows(plan, bounds, r, begin, stop, span, span * split, (span + 1) * split)
        elif low < high:
            add_rows(plan, bounds, r, begin, stop, 0, 0, high)
    return records
