"""Items of work, one thread each: some query rows over a span of positions, page after page.

All KV heads of a tile are read before the next tile is, as they lie in the same pages, and while one head is computed
memory is asked for the next one.
"""

from typing import Any, NamedTuple

from pagedkv.optimized.cpu.compiler import compiled
from pagedkv.optimized.cpu.records import clear, finish, finish_nothing, merge, record_size
from pagedkv.optimized.cpu.rows import take_in
from pagedkv.optimized.cpu.simd import WIDTH, copy_bytes, load_int32, load_int64, store_int64, take_next
from pagedkv.optimized.cpu.tiles import (
    COLUMNS, LINE, PIECE, ROWS, item_size, read_keys, read_row, read_values, whole_columns, whole_rows,
)  # fmt: skip
from pagedkv.optimized.cpu.work import TILE, Item


class Desk(NamedTuple):
    """Where a thread has what it works with."""

    keys: int
    """One tile, turned: `whole_columns(head_dim)` lines of `TILE`, of which `head_dim` count."""
    values: int
    """`TILE` lines of `whole_columns(value_dim)`."""
    scores: int
    """A line of `TILE` for each row of a head: its scores, then its weights."""
    sums: int
    """`ROWS` lines of `whole_columns(value_dim)`."""
    queries: int
    """`whole_columns(head_dim)` for each row of each head."""
    records: int
    """One for each row of each head."""
    factors: int
    """What each row's sums are multiplied by."""
    places: int
    """Addresses, int64, of a tile's keys, then of its values; then the same of the next tile."""
    ranges: int
    """Of each row of a head the first position that it sees, the one behind the last, and its own, int64."""
    pieces: int
    """Addresses, int64, of what is to be asked for."""


@compiled
def most_pieces(work: Any) -> int:
    """Of one head of a tile; twice as many as there are turns to ask for them, if those are more."""
    rows = TILE * ((work.head_dim + work.value_dim) * item_size(work.kind) // PIECE + 4)
    return max(rows, TILE * (whole_columns(work.head_dim) + whole_columns(work.value_dim)) // WIDTH)


@compiled
def desk_at(work: Any, place: int) -> Desk:
    """From `place` on."""
    lines, columns, rows = whole_columns(work.head_dim), whole_columns(work.value_dim), work.rows
    values = place + 4 * TILE * lines
    scores = values + 4 * TILE * columns
    sums = scores + 4 * TILE * rows
    queries = sums + 4 * columns * ROWS
    records = queries + 4 * lines * rows
    factors = records + record_size(work.value_dim) * rows
    places = factors + 8 * rows
    ranges = places + 8 * 4 * TILE
    return Desk(place, values, scores, sums, queries, records, factors, places, ranges, ranges + 8 * 3 * rows)


@compiled
def desk_size(work: Any) -> int:
    """Bytes of a desk, in whole cache lines."""
    return (desk_at(work, 0).pieces + 8 * most_pieces(work)) // LINE * LINE + LINE


@compiled
def find_places(work: Any, request: int, base: int, first: int, end: int, places: int) -> None:
    """Addresses of the keys and values of a tile's positions; those outside first <= position < end are not looked up,
    and get the address of one inside."""
    for i in range(TILE):
        position = min(max(base + i, first), end - 1)
        entry = work.tables + request * work.tables_row + 4 * (position // work.block_size)
        block, offset = load_int32(entry), position % work.block_size
        store_int64(places + 8 * i, work.keys + block * work.keys_block + offset * work.keys_token)
        store_int64(places + 8 * (TILE + i), work.values + block * work.values_block + offset * work.values_token)


@compiled
def list_rows(pieces: int, places: int, offset: int, size: int) -> int:
    """List the pieces of a tile's rows of `size` bytes, `offset` behind their places; returns where the list ends."""
    for i in range(TILE):
        row = load_int64(places + 8 * i) + offset
        for piece in range(row & -LINE, row + size, PIECE):
            store_int64(pieces, piece)
            pieces += 8
    return pieces


@compiled
def list_pieces(work: Any, desk: Any, places: int, head: int) -> int:
    """List what is to be asked for of one head of a tile, its keys, then its values.

    Returns how many pieces with every four k of the products, and fills the list up to that.
    """
    size = item_size(work.kind)
    last = list_rows(desk.pieces, places, head * work.keys_head, work.head_dim * size)
    last = list_rows(last, places + 8 * TILE, head * work.values_head, work.value_dim * size)
    turns = TILE // COLUMNS * (work.head_dim // 4) + whole_columns(work.value_dim) // COLUMNS * (TILE // 4)
    pace = 1 if last - desk.pieces <= 8 * turns else 2
    for piece in range(last, desk.pieces + 8 * turns * pace, 8):
        store_int64(piece, load_int64(desk.pieces))
    return pace


@compiled
def lay_out(work: Any, item: Any, tokens: Any, bounds: Any, desk: Any) -> int:
    """Ranges, queries as float32, and records of no positions; returns rows of a head, a multiple of `ROWS`.

    Rows that fill up the last block repeat the last row, and their results are nobody's.
    """
    count = (item.end_token - item.first_token) * work.group
    rows = whole_rows(count)
    columns, step = whole_columns(work.value_dim), record_size(work.value_dim)
    for i in range(rows):
        token = tokens[item.first_token + min(i, count - 1) // work.group]
        store_int64(desk.ranges + 24 * i, max(item.first, bounds[token, 0]))
        store_int64(desk.ranges + 24 * i + 8, min(item.end, bounds[token, 1]))
        store_int64(desk.ranges + 24 * i + 16, bounds[token, 2])
        for h in range(item.first_head, item.end_head):
            place = work.query + token * work.query_token
            place += (h * work.group + min(i, count - 1) % work.group) * work.query_head
            at = (h - item.first_head) * rows + i
            read_row(work.kind, place, work.head_dim, desk.queries + 4 * whole_columns(work.head_dim) * at)
            clear(desk.records + step * at, columns)
    return rows


@compiled
def attend_item(work: Any, item: Any, tokens: Any, bounds: Any, desk: Any) -> None:
    """Sums over the item's positions, in the desk's records."""
    rows = lay_out(work, item, tokens, bounds, desk)
    heads, line, step = item.end_head - item.first_head, 4 * whole_columns(work.head_dim), record_size(work.value_dim)
    here, there = desk.places, desk.places + 16 * TILE
    begin = item.grid + (item.first - item.grid) // TILE * TILE
    find_places(work, item.request, begin, item.first, item.end, here)
    for base in range(begin, item.end, TILE):
        more = base + TILE < item.end
        if more:
            find_places(work, item.request, base + TILE, item.first, item.end, there)
        for h in range(heads):
            pace, head = 0, item.first_head + h
            if h + 1 < heads:
                pace = list_pieces(work, desk, here, head + 1)
            elif more:
                pace = list_pieces(work, desk, there, item.first_head)
            read_keys(work.kind, here, head * work.keys_head, work.head_dim, desk.keys)
            count = min(TILE, item.end - base)
            read_values(work.kind, here + 8 * TILE, head * work.values_head, count, work.value_dim, desk.values)
            queries, records = desk.queries + line * h * rows, desk.records + step * h * rows
            take_in(work, desk, rows, base, queries, records, head, pace)
        here, there = there, here


@compiled
def hand_in(work: Any, item: Any, tokens: Any, parts: Any, desk: Any) -> None:
    """Records of rows with one span are finished; those of others are kept, to be merged."""
    step, heads = record_size(work.value_dim), item.end_head - item.first_head
    count = item.end_token - item.first_token
    rows = whole_rows(count * work.group)
    for t in range(count):
        token = tokens[item.first_token + t]
        for h in range(heads):
            for g in range(work.group):
                head = (item.first_head + h) * work.group + g
                record = desk.records + step * (h * rows + t * work.group + g)
                if parts[token, 2] == 1:
                    finish(work, record, token, head)
                else:
                    copy_bytes(record_of(work, parts, token, head, item.span), record, step)


@compiled
def record_of(work: Any, parts: Any, token: int, head: int, span: int) -> int:
    """Where the record of a row for a span is kept: those of a row lie side by side.

    `parts` (total_q, 3): of each token the first of its records, counted in rows, the first of its spans, and how many.
    """
    number = parts[token, 0] + head * parts[token, 2] + span - parts[token, 1]
    return work.records + number * record_size(work.value_dim)


@compiled
def work_through(work: Any, items: Any, tokens: Any, bounds: Any, parts: Any, counter: int, place: int) -> None:
    """Take items until there are none left; several threads do, each at a desk of its own, at `place`."""
    desk = desk_at(work, place)
    n = take_next(counter)
    while n < len(items):
        i = items[n]
        item = Item(i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7], i[8])
        attend_item(work, item, tokens, bounds, desk)
        hand_in(work, item, tokens, parts, desk)
        n = take_next(counter)


@compiled
def merge_through(work: Any, parts: Any, counter: int, place: int) -> None:
    """Merge the spans of each token that has several, and finish those that see nothing; as `work_through`."""
    columns, step = whole_columns(work.value_dim), record_size(work.value_dim)
    record = desk_at(work, place).records
    token = take_next(counter)
    while token < len(parts):
        for head in range(work.num_kv_heads * work.group):
            if parts[token, 2] == 0:
                finish_nothing(work, token, head)
            elif parts[token, 2] > 1:
                merge(record, record_of(work, parts, token, head, parts[token, 1]), parts[token, 2], step, columns)
                finish(work, record, token, head)
        token = take_next(counter)
