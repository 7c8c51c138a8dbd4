"""Named mutants of the kernels of the device pool. `breaks` is the law of `laws` that must notice the mutant."""

from typing import Final

from tests.optimized.device.mutant_tool import kernel

GROW: Final = (
    kernel(
        "grow",
        "lost decrement on copy-on-write",
        "state",
        ('        tl.atomic_add(references + old, -1, mask=copied, sem="relaxed")\n', ""),
    ),
    kernel(
        "grow",
        "lengths are read where they are written",
        "races",
        ("        tl.store(seq_lens + index, tl.where(served, now, 0))", "        tl.store(before + index, now)"),
    ),
    kernel("grow", "prefix sum inclusive", "state", ("left - (reach - need)", "left - reach")),
    kernel(
        "grow",
        "a refusal keeps a block",
        "state",
        (
            "            undecided = undecided & ~hopeless\n",
            "            undecided = undecided & ~hopeless\n            left -= tl.sum(hopeless.to(tl.int32), 0)\n",
        ),
    ),
    kernel(
        "grow",
        "a refused member of a group is forgotten",
        "state",
        ("mask=hopeless & shared)", "mask=hopeless & (index < 0))"),
    ),
    kernel("grow", "the last writer copies too", "state", ("shared & ~(is_last & (leaving == owners))", "shared")),
    kernel(
        "grow", "the last writes in place whoever else stays", "state", ("is_last & (leaving == owners)", "is_last")
    ),
    kernel(
        "grow",
        "the first writer writes in place",
        "state",
        ('cache_modifier=".cg") == index', 'cache_modifier=".cg") == 10**6 - index'),
        ("tl.atomic_max(last_writer + old, index,", "tl.atomic_max(last_writer + old, 10**6 - index,"),
    ),
    kernel(
        "grow", "served past one that waits", "state", ("fitting = undecided & (reach <= left)", "fitting = undecided")
    ),
    kernel(
        "grow",
        "slots of each chunk from 0",
        "pieces",
        ("slots + tl.cumsum(asked_for, 0)", "tl.cumsum(asked_for, 0)"),
    ),
    kernel(
        "grow",
        "free blocks of each chunk anew",
        "pieces",
        ("        height = tl.zeros((CHUNK,)", "        left = tl.load(counters)\n        height = tl.zeros((CHUNK,)"),
    ),
    kernel(
        "grow",
        "slot of the old block after a copy",
        "state",
        ("height - 1 - (entry - first)", "height - 1 - (entry - blocks)"),
    ),
    kernel("grow", "blocks taken are still counted as free", "state", ("    tl.store(counters, left)\n", "")),
    kernel(
        "grow", "writers are not forgotten", "invariants", ("        tl.store(writers + old, 0, mask=old >= 0)\n", "")
    ),
    kernel(
        "grow",
        "the last writer is not forgotten",
        "invariants",
        ("        tl.store(last_writer + old, -1, mask=old >= 0)\n", ""),
    ),
    kernel(
        "grow", "holes count against what ever fits", "state", ("num_blocks - (blocks - holes)", "num_blocks - blocks")
    ),
    kernel(
        "grow", "table full one block early", "state", ("fresh > max_blocks - blocks", "fresh >= max_blocks - blocks")
    ),
    kernel(
        "grow",
        "a row runs into the table of the next",
        "state",
        ("tl.where(fresh > max_blocks - blocks, TABLE_FULL, found)", "found"),
    ),
    kernel(
        "grow",
        "a new block without an owner",
        "invariants",
        ("tl.store(references + block, 1,", "tl.store(references + block, 0,"),
    ),
    kernel(
        "grow",
        "blocks taken from the wrong end",
        "state",
        ("height - 1 - start - lanes", "height - takes + start + lanes"),
    ),
    kernel(
        "grow",
        "new entries of each piece at the first",
        "pieces",
        ("max_blocks + first + start + lanes", "max_blocks + first + lanes"),
    ),
    kernel(
        "grow",
        "a refused row grows all the same",
        "state",
        ("served = tl.load(outcome + index) == OK", "served = tl.load(outcome + index) % CAPACITY == OK"),
    ),
    kernel("grow", "nothing written, and copied all the same", "state", (" & (count > 0)", "")),
    kernel("grow", "a negative count takes slots back", "state", ("tl.maximum(count, 0)", "count")),
    kernel(
        "grow",
        "the end of the slot mapping is left",
        "state",
        ("mask=start + lanes < total)", "mask=start + lanes < total - 1)"),
    ),
    kernel(
        "grow",
        "the old block is given up without atomics",
        "races",
        (
            'tl.atomic_add(references + old, -1, mask=copied, sem="relaxed")',
            "tl.store(references + old, tl.load(references + old, mask=copied) - 1, mask=copied)",
        ),
    ),
)

FORK: Final = (
    kernel(
        "fork",
        "reference of a fork not counted",
        "invariants",
        ("tl.atomic_add(references + block, 1, mask=", "tl.atomic_add(references + block, 0, mask="),
    ),
    kernel(
        "fork",
        "references counted without atomics",
        "races",
        (
            'tl.atomic_add(references + block, 1, mask=(block >= 0) & (block < num_blocks), sem="relaxed")',
            "tl.store(references + block, tl.load(references + block, mask=block >= 0) + 1, mask=block >= 0)",
        ),
    ),
    kernel(
        "fork",
        "the partial last block stays behind",
        "state",
        ("(length + BLOCK_SIZE - 1) // BLOCK_SIZE", "length // BLOCK_SIZE"),
    ),
    kernel("fork", "a child without holes", "state", ("tl.load(numbers + 2 * num_rows + parent)", "0")),
    kernel(
        "fork", "a hole gets a reference", "state", ("1, mask=(block >= 0) & (block < num_blocks)", "1, mask=is_entry")
    ),
    kernel("fork", "over a row in use", "state", ("taken | missing", "missing")),
    kernel("fork", "of a row that is not in use", "state", ("taken | missing", "taken")),
    kernel("fork", "the first piece again and again", "pieces", ("tl.program_id(1) * PIECE", "0 * PIECE")),
)

RELEASE: Final = (
    kernel(
        "release", "window off by one", "state", ("tl.maximum(written - KEPT, 0)", "tl.maximum(written - KEPT + 1, 0)")
    ),
    kernel(
        "release",
        "truncate keeps the block it should give back",
        "state",
        ("low = (shorter + BLOCK_SIZE - 1) // BLOCK_SIZE", "low = shorter // BLOCK_SIZE + 1"),
    ),
    kernel(
        "release",
        "truncate gives the last block back",
        "state",
        ("low = (shorter + BLOCK_SIZE - 1) // BLOCK_SIZE", "low = shorter // BLOCK_SIZE"),
    ),
    kernel("release", "double push", "state", ("is_free = stands & (", "is_free = is_block & (")),
    kernel("release", "a block given away while shared", "state", ("other=1) == 0)", "other=1) <= 1)")),
    kernel(
        "release",
        "block 0 is never given back",
        "state",
        (
            "tl.atomic_add(references + block, -1, mask=is_block",
            "tl.atomic_add(references + block, -1, mask=is_block & (block > 0)",
        ),
    ),
    kernel(
        "release",
        "references taken away without atomics",
        "races",
        (
            'tl.atomic_add(references + block, -1, mask=is_block, sem="relaxed")',
            "tl.store(references + block, tl.load(references + block, mask=is_block) - 1, mask=is_block)",
        ),
    ),
    kernel(
        "release",
        "a hole pushed on the free list",
        "state",
        ("is_free = mark >= 0", "is_free = (mark >= -1) & (entry < high)"),
    ),
    kernel(
        "release",
        "the last program to come gives the block back",
        "order",
        ("tl.atomic_max(last_release", "tl.atomic_xchg(last_release"),
    ),
    kernel(
        "release",
        "the first program to come gives the block back",
        "order",
        (
            "tl.load(last_release + block, mask=is_block, other=-2) == index * max_blocks + entry",
            "tl.atomic_xchg(last_release + block, 0, mask=is_block) > 0",
        ),
    ),
    kernel(
        "release",
        "places of each chunk from the same height",
        "pieces",
        ("        height += tl.sum(count, 0)\n", "        height = tl.load(counters) + tl.sum(count, 0)\n"),
    ),
    kernel("release", "places behind themselves", "state", ("tl.cumsum(count, 0) - count", "tl.cumsum(count, 0)")),
    kernel(
        "release",
        "pushed in the other direction",
        "state",
        ("to + order - 1", "to + tl.sum(is_free.to(tl.int32), 0) - order"),
    ),
    kernel("release", "what is still shared stays marked", "invariants", ("mask=is_free | kept", "mask=is_free")),
    kernel(
        "release",
        "each piece pushed over the one before",
        "pieces",
        ("        to += tl.sum(is_free.to(tl.int32), 0)\n", ""),
    ),
    kernel(
        "release",
        "a freed row stays in use",
        "state",
        ("tl.store(numbers + row, 0, mask=served)", "tl.store(numbers + row, 1, mask=served)"),
    ),
    kernel("release", "the next query stands at the new end", "state", ("tl.minimum(shorter, written)", "shorter")),
    kernel("release", "sinks are given back", "state", ("low = (holes + SINK_BLOCKS)", "low = holes")),
    kernel("release", "a hole without its mark", "invariants", ("-1 if WHAT == WINDOW else 0", "0")),
)

ROWS: Final = (
    kernel(
        "rows", "duplicates served twice", "state", ('cache_modifier=".cg") != index', 'cache_modifier=".cg") > index')
    ),
    kernel(
        "rows", "rows stay claimed", "invariants", ("tl.store(claims + row, UNCLAIMED,", "tl.store(claims + row, 0,")
    ),
    kernel("rows", "where is not looked at", "state", ("skipped | (tl.load(where", "skipped & (tl.load(where")),
    kernel("rows", "outcomes are not counted", "state", ("other=0) + tallied", "other=0) + 0 * tallied")),
    kernel(
        "rows",
        "claimed by the last",
        "state",
        ("tl.atomic_min(claims + row, index", "tl.atomic_min(claims + row, num_asked - index"),
    ),
)

KERNEL_MUTANTS: Final = (*GROW, *FORK, *RELEASE, *ROWS)
