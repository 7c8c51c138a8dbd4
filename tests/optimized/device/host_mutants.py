"""Named mutants of what goes between the host and the pool, kernels and loops; see `pool_mutants`, `loop_mutants`."""

from typing import Final

from tests.optimized.device.mutant_tool import kernel, loop

HOST_KERNELS: Final = (
    kernel("bring", "lent anew each time", "state", ("mask=is_block & (before == 0)", "mask=is_block")),
    kernel(
        "bring",
        "lent without a reference of the host's",
        "invariants",
        ("block, 1, mask=is_block & (before == 0)", "block, 0, mask=is_block & (before == 0)"),
    ),
    kernel(
        "bring",
        "lent without a reference of the row's",
        "invariants",
        ('block, 1, mask=is_block, sem="relaxed")\n        if', 'block, 0, mask=is_block, sem="relaxed")\n        if'),
    ),
    kernel(
        "bring",
        "given away and still the host's",
        "invariants",
        ("tl.atomic_max(owned + block, 1,", "tl.atomic_max(owned + block, 0,"),
    ),
    kernel(
        "bring",
        "holes are forgotten",
        "state",
        ("tl.store(numbers + 2 * num_rows + row, holes)", "tl.store(numbers + 2 * num_rows + row, 0)"),
    ),
    kernel(
        "bring",
        "over a row in use",
        "state",
        ("tl.where(in_use, WRONG_ROW, found)", "tl.where(~known, WRONG_ROW, found)"),
    ),
    kernel(
        "bring",
        "longer than its table",
        "state",
        ("        found = tl.where((length + BLOCK_SIZE - 1) // BLOCK_SIZE > width, TABLE_FULL, found)\n", ""),
    ),
    kernel(
        "bring",
        "the first piece again and again",
        "pieces",
        ("given_stride + entry, mask=is_entry, other=-1", "given_stride + entry % PIECE, mask=is_entry, other=-1"),
    ),
    kernel(
        "bring",
        "the table of the first row",
        "state",
        (
            "index.to(tl.int64) * given_stride + entry, mask=is_entry, other=-1",
            "0 * given_stride + entry, mask=is_entry, other=-1",
        ),
    ),
    kernel(
        "bring",
        "lent without atomics",
        "races",
        (
            'before = tl.atomic_max(lent + block, 1, mask=is_block, sem="relaxed")',
            (
                "before = tl.load(lent + block, mask=is_block, other=1)\n"
                "            tl.store(lent + block, 1, mask=is_block)"
            ),
        ),
    ),
    kernel(
        "release",
        "what others have goes along",
        "state",
        ("other=0) == 1)\n        tl.store(owned", "other=0) >= 1)\n        tl.store(owned"),
    ),
    kernel(
        "release",
        "what goes along stays the pool's",
        "state",
        ("tl.store(owned + block, 0, mask=alone)", "tl.store(owned + block, 1, mask=alone)"),
    ),
    kernel(
        "release",
        "free though it is not the pool's",
        "invariants",
        ("        is_free = is_free & (tl.load(owned + block, mask=is_block, other=0) > 0)\n", ""),
    ),
    kernel(
        "bring",
        "blocks past the last one",
        "state",
        ("there = is_entry & (block >= 0) & (block < num_blocks)", "there = is_entry & (block >= 0)"),
    ),
    kernel("bring", "free blocks are imported", "state", ("(is_entry & (~there | taken))", "(is_entry & ~there)")),
    kernel("bring", "any number of holes", "state", ("((holes < 0) | (holes > most_holes))", "(holes < 0)")),
)

HOST_LOOPS: Final = (
    loop("importing", "lent anew each time", "state", ("elif pool.lent[block] == 0:", "else:")),
    loop(
        "importing", "given away and still the host's", "invariants", ("pool.owned[block] = 1", "pool.owned[block] = 0")
    ),
    loop(
        "importing",
        "holes are forgotten",
        "state",
        ("pool.numbers[HOLES, rows[i]] = num_holes[i] if len(num_holes) else 0", "pool.numbers[HOLES, rows[i]] = 0"),
    ),
    loop(
        "importing", "holes have references", "state", ("                if not gone:\n", "                if True:\n")
    ),
    loop(
        "giving_back",
        "what others have goes along",
        "state",
        ("pool.references[block] == 1:", "pool.references[block] >= 1:"),
    ),
    loop(
        "giving_back",
        "free though it is not the pool's",
        "invariants",
        ("pool.references[block] == 0 and pool.owned[block] > 0", "pool.references[block] == 0"),
    ),
)
