"""Named mutants of the loops of the device pool.

`breaks` is what must notice the mutant: "fuzz", the conformance kit's random programs on a subject of these loops;
"invariants"; or "state", where they do not do what the kernels do.
"""

from typing import Final

from tests.optimized.device.mutant_tool import loop

LOOP_MUTANTS: Final = (
    loop("growth", "lost decrement on copy-on-write", "invariants", ("        pool.references[pair[0]] -= 1\n", "")),
    loop(
        "growth",
        "copied only from the third owner on",
        "fuzz",
        ("pool.references[pool.tables[row, blocks - 1]] > 1", "pool.references[pool.tables[row, blocks - 1]] > 2"),
    ),
    loop("growth", "a copy needs no block", "fuzz", ("after - blocks + copied > pool", "after - blocks > pool")),
    loop("growth", "a copy onto itself", "fuzz", ("pair[1] = pool.tables[row, blocks]", "pair[1] = pair[0]")),
    loop("growth", "slots one position late", "fuzz", ("- count + at - first", "- count + at - first + 1")),
    loop(
        "growth",
        "holes count against what ever fits",
        "state",
        ("after - pool.numbers[HOLES, row] > len", "after > len"),
    ),
    loop(
        "growth",
        "the slots of a refused row are left",
        "state",
        (
            "seq_lens[i], slots[min(first, len(slots)) : min(end, len(slots))], copies[i] = 0, -1, -1",
            "seq_lens[i], copies[i] = 0, -1",
        ),
    ),
    loop("giving_back", "pushed while shared", "invariants", ("pool.references[block] == 0", "True")),
    loop(
        "giving_back",
        "truncate gives the last block back",
        "fuzz",
        ("first, end = (lengths[i] + block_size - 1) // block_size,", "first, end = lengths[i] // block_size,"),
    ),
    loop("giving_back", "window off by one", "fuzz", ("max(0, written - kept)", "max(0, written - kept + 1)")),
    loop(
        "giving_back",
        "a hole is given back",
        "invariants",
        (
            "        if 0 <= block < len(pool.references):\n            pool.references[block] -= 1",
            "        if True:\n            pool.references[block] -= 1",
        ),
    ),
    loop(
        "giving_back",
        "what was released may come back",
        "fuzz",
        ("block_size < holes + sink_blocks", "block_size < holes"),
    ),
    loop(
        "giving_back",
        "freed and still in use",
        "state",
        ("pool.numbers[:, row] = 0", "pool.numbers[1:, row] = 0"),
    ),
    loop("sharing", "reference of a fork not counted", "invariants", ("pool.references[block] += 1", "pass")),
    loop(
        "sharing", "a child without holes", "invariants", ("range(len(pool.numbers))", "range(len(pool.numbers) - 1)")
    ),
    loop(
        "sharing",
        "a child of the call is a parent in it",
        "state",
        ("known = 0 <= parents[i] < len(in_use) and in_use[parents[i]] > 0", "known = 0 <= parents[i] < len(in_use)"),
    ),
    loop(
        "rows",
        "rows stay claimed",
        "invariants",
        ("            pool.claims[rows[i]] = UNCLAIMED\n", "            pass\n"),
    ),
    loop("rows", "duplicates served twice", "state", ("if pool.claims[row] != UNCLAIMED:", "if False:")),
    loop("rows", "where is not looked at", "state", ("not where[i]", "where[i] is None")),
)
