"""Items of work, one thread each: some query rows over a span of positions, page after page.

All KV heads of a tile are read before the next tile is, as they lie in the same pages.
"""

from typing import Any

from pagedkv.optimized.cpu.compiler import compiled
from pagedkv.optimized.cpu.places import Following, find_following, find_places, first_tile, item_at, look_ahead
from pagedkv.optimized.cpu.products import whole_columns, whole_rows
from pagedkv.optimized.cpu.records import clear, finish, finish_nothing, merge, record_size
from pagedkv.optimized.cpu.rows import attend_tile
from pagedkv.optimized.cpu.scratch import scratch_at
from pagedkv.optimized.cpu.simd import copy_bytes, store_int64, take_next
from pagedkv.optimized.cpu.tiles import read_keys, read_row, read_values
from pagedkv.optimized.cpu.work import TILE


@compiled
def lay_out(work: Any, item: Any, tokens: Any, bounds: Any, scratch: Any) -> int:
    """Ranges, queries, and records of no positions; returns rows of a head, a multiple of `ROWS`.

    Rows that fill up the last block repeat the last row, and their results are nobody's.
    """
    count = (item.end_token - item.first_token) * work.group
    rows = whole_rows(count)
    columns, step = whole_columns(work.value_dim), record_size(work.value_dim)
    for i in range(rows):
        token = tokens[item.first_token + min(i, count - 1) // work.group]
        store_int64(scratch.ranges + 24 * i, bounds[token, 0])
        store_int64(scratch.ranges + 24 * i + 8, min(item.end, bounds[token, 1]))
        store_int64(scratch.ranges + 24 * i + 16, bounds[token, 2])
        for h in range(item.first_head, item.end_head):
            place = work.query + token * work.query_token
            place += (h * work.group + min(i, count - 1) % work.group) * work.query_head
            at = (h - item.first_head) * rows + i
            target = scratch.queries + 4 * whole_columns(work.head_dim) * at
            if work.in_pairs:
                copy_bytes(target, place, 2 * work.head_dim)
            else:
                read_row(work.kind, place, work.head_dim, target)
            clear(scratch.records + step * at, columns)
    return rows


@compiled
def attend_item(
    work: Any, items: Any, n: int, tokens: Any, bounds: Any, scratch: Any, here: int, there: int, counter: int
) -> tuple[int, int, int]:
    """Sums over the positions of item n, in the records of the scratch memory.

    `here`: places of its first tile; `there`: room for those of the next. Returns the number of the next item, which is
    taken before this one is done, so that its first tile can be prefetched; its places, and room.
    """
    item, following = item_at(items, n), Following(n, 0, 0)
    rows, heads = lay_out(work, item, tokens, bounds, scratch), item.end_head - item.first_head
    line, step = 4 * whole_columns(work.head_dim), record_size(work.value_dim)
    for base in range(first_tile(item), item.end, TILE):
        following = find_following(work, items, n, base, counter, there)
        for h in range(heads):
            head = item.first_head + h
            ahead = look_ahead(work, item, h, following, here, there, scratch.coming)
            ahead = read_keys(work, here, head, scratch.keys, ahead)
            ahead = read_values(work, here + 8 * TILE, head, min(TILE, item.end - base), scratch.values, ahead)
            queries, records = scratch.queries + line * h * rows, scratch.records + step * h * rows
            attend_tile(work, scratch, rows, base, queries, records, head, ahead)
        here, there = there, here
    return following.item, here, there


@compiled
def hand_in(work: Any, item: Any, tokens: Any, parts: Any, scratch: Any) -> None:
    """Records of rows with one span are finished; those of others are kept, to be merged."""
    step, heads = record_size(work.value_dim), item.end_head - item.first_head
    count = item.end_token - item.first_token
    rows = whole_rows(count * work.group)
    for t in range(count):
        token = tokens[item.first_token + t]
        for h in range(heads):
            for g in range(work.group):
                head = (item.first_head + h) * work.group + g
                record = scratch.records + step * (h * rows + t * work.group + g)
                if parts[token, 2] == 1:
                    finish(work, record, token, head)
                else:
                    copy_bytes(record_of(work, parts, token, head, item.span), record, step)


@compiled
def record_of(work: Any, parts: Any, token: int, head: int, span: int) -> int:
    """Where the record of a row for a span is kept: those of a row lie side by side. `parts`: see `planning`."""
    number = parts[token, 0] + head * parts[token, 2] + span - parts[token, 1]
    return work.records + number * record_size(work.value_dim)


@compiled
def work_through(work: Any, items: Any, tokens: Any, bounds: Any, parts: Any, counter: int, place: int) -> None:
    """Take items until there are none left; several threads do, each with scratch memory of its own, at `place`."""
    scratch, n = scratch_at(work, place), take_next(counter)
    here, there = scratch.places, scratch.places + 8 * 2 * TILE
    if n < len(items):
        find_places(work, item_at(items, n), first_tile(item_at(items, n)), here)
    while n < len(items):
        item = item_at(items, n)
        n, here, there = attend_item(work, items, n, tokens, bounds, scratch, here, there, counter)
        hand_in(work, item, tokens, parts, scratch)


@compiled
def merge_through(work: Any, parts: Any, counter: int, place: int) -> None:
    """Merge the spans of each token that has several, and finish those that see nothing; as `work_through`."""
    columns, step = whole_columns(work.value_dim), record_size(work.value_dim)
    record = scratch_at(work, place).records
    token = take_next(counter)
    while token < len(parts):
        for head in range(work.num_kv_heads * work.group):
            if parts[token, 2] == 0:
                finish_nothing(work, token, head)
            elif parts[token, 2] > 1:
                merge(record, record_of(work, parts, token, head, parts[token, 1]), parts[token, 2], step, columns)
                finish(work, record, token, head)
        token = take_next(counter)
