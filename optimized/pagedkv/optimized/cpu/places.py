"""Where the rows of a tile lie, and which are prefetched while the tile before is computed."""

from typing import Any, Final, NamedTuple

from pagedkv.optimized.cpu.compiler import compiled, inlined
from pagedkv.optimized.cpu.prefetching import Prefetch
from pagedkv.optimized.cpu.products import COLUMNS, TURN, whole_columns
from pagedkv.optimized.cpu.simd import WIDTH, load_int32, load_int64, store_int64, take_next
from pagedkv.optimized.cpu.storage import item_size
from pagedkv.optimized.cpu.work import TILE, Item

WHOLE_TILE: Final = 2**17
"""Bytes of all heads of a tile. Up to so many the next tile is prefetched as a whole, in the order in which its rows
lie, as memory is quicker then: the second-level cache has room for two of that size."""


class Following(NamedTuple):
    """The tile after one."""

    item: int
    """The number of its item: the same one, or the next."""
    head: int
    """Its first KV head."""
    heads: int
    """How many; 0 if there is no such tile."""


@compiled
def item_at(items: Any, n: int) -> Item:
    """One of those planned."""
    i = items[n]
    return Item(i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7], i[8])


@compiled
def first_tile(item: Any) -> int:
    """Where the tile of an item's first position begins."""
    begin: int = item.grid + (item.first - item.grid) // TILE * TILE
    return begin


@compiled
def find_places(work: Any, item: Any, base: int, places: int) -> None:
    """Addresses of the keys of a tile's positions, then of their values. Positions outside of the item are not looked
    up, and get the address of one inside."""
    position = max(base, item.first)
    entry = work.tables + item.request * work.tables_row + 4 * (position // work.block_size)
    block, offset = load_int32(entry), position % work.block_size
    for i in range(TILE):
        store_int64(places + 8 * i, work.keys + block * work.keys_block + offset * work.keys_token)
        store_int64(places + 8 * (TILE + i), work.values + block * work.values_block + offset * work.values_token)
        if item.first <= base + i < item.end - 1:
            offset += 1
            if offset == work.block_size:
                entry += 4
                block, offset = load_int32(entry), 0


@compiled
def find_following(work: Any, items: Any, n: int, base: int, counter: int, places: int) -> Following:
    """The places of the tile after the one at `base` of item n. Where that is the last, the next item is taken now."""
    item = item_at(items, n)
    base += TILE
    if base >= item.end:
        n = take_next(counter)
        if n >= len(items):
            return Following(n, 0, 0)
        item = item_at(items, n)
        base = first_tile(item)
    find_places(work, item, base, places)
    return Following(n, item.first_head, item.end_head - item.first_head)


@inlined
def look_ahead(work: Any, item: Any, h: int, following: Any, here: int, there: int, coming: int) -> Prefetch:
    """What to prefetch while head number h of an item's tile is computed: a share of the next tile, or the next head.

    `here`, `there`: places of the tile and of the next; `coming`: room for a list.
    """
    heads = item.end_head - item.first_head
    if heads * TILE * (work.head_dim + work.value_dim) * item_size(work.kind) <= WHOLE_TILE:
        return list_share(work, there, h, following.head, following.heads, coming)
    if h + 1 < heads:
        return list_share(work, here, 0, item.first_head + h + 1, 1, coming)
    return list_share(work, there, 0, following.head, min(1, following.heads), coming)


@inlined
def list_share(work: Any, places: int, share: int, head: int, heads: int, coming: int) -> Prefetch:
    """The rows of some heads of a tile in the order in which they lie; a share is `TILE` of keys, and `TILE` of values.

    A share behind the last has none.
    """
    if share >= heads:
        return Prefetch(coming, coming, 0, 0)
    if work.keys_head > work.keys_token:  # rows of a head lie side by side, else those of a token
        share, head, heads = 0, head + share, 1
    token, h = share * TILE // heads, share * TILE % heads
    keys, values = (head + h) * work.keys_head, (head + h) * work.values_head
    for i in range(TILE):
        store_int64(coming + 8 * i, load_int64(places + 8 * token) + keys)
        store_int64(coming + 8 * (TILE + i), load_int64(places + 8 * (TILE + token)) + values)
        h, keys, values = h + 1, keys + work.keys_head, values + work.values_head
        if h == heads:
            token, h, keys, values = token + 1, 0, head * work.keys_head, head * work.values_head
    size = max(work.head_dim, work.value_dim) * item_size(work.kind)
    return Prefetch(coming, coming + 8 * 2 * TILE, size, pace(work))


@inlined
def pace(work: Any) -> int:
    """Rows to prefetch in one go: as many as it takes, by how often a head's work calls for some, to get them all."""
    reading = TILE // WIDTH * (work.head_dim // WIDTH) + TILE // 2
    products = TILE // COLUMNS * (work.head_dim // TURN) + whole_columns(work.value_dim) // COLUMNS * (TILE // TURN)
    return (2 * TILE + reading + products - 1) // (reading + products)
