"""Broken optimized managers: who owns a block, and where it goes when nobody does."""

from typing import Final

from tests.conformance.broken_manager_tool import mutant

SHARING: Final = (
    mutant(
        "skipped copy-on-write",
        "a block with another owner is never written",
        "loops.growth",
        ("        if m.blocks[block, REFERENCES] > 1:\n", "        if False:\n"),
    ),
    mutant(
        "skipped copy-on-write in decoding",
        "a fork leaves no room to the parent",
        "loops.rows",
        ("    set_number(m, ROOM, parent, UNKNOWN)\n", ""),
    ),
    mutant(
        "copy-on-write the wrong way round",
        "a copy goes from the shared block to the private one",
        "loops.growth",
        (
            "            release(m, block)\n",
            (
                "            copies[num_copies, 1], copies[num_copies, 2] = copies[num_copies, 2], block\n"
                "            release(m, block)\n"
            ),
        ),
    ),
    mutant(
        "the shared block is not given up",
        "references = table occurrences + pins",
        "loops.growth",
        ("            release(m, block)\n", ""),
    ),
    mutant(
        "reference not counted on fork",
        "references = table occurrences + pins",
        "loops.rows",
        ("            if block != HOLE:\n                acquire(m, block)\n", ""),
    ),
    mutant(
        "fork takes the lookahead along",
        "a child's table ends with its length",
        "loops.rows",
        (
            "m.numbers[PATH, parent]\n    count = (length + block_size - 1) // block_size\n",
            "m.numbers[PATH, parent]\n    count = m.numbers[BLOCKS, parent]\n",
        ),
    ),
    mutant(
        "a block that is hit counts as free",
        "every block is free, used or idle",
        "loops.blocks",
        ("        m.counters[USED] += 1\n        m.counters[USED_INDEXED]", "        m.counters[USED_INDEXED]"),
    ),
)

GIVING_BACK: Final = (
    mutant(
        "freed while shared",
        "a block is available only without references",
        "loops.blocks",
        ("    if references:\n", "    if references > 1:\n"),
    ),
    mutant(
        "freed for all its owners at once",
        "shared blocks survive",
        "loops.blocks",
        ("references = m.blocks[block, REFERENCES] - 1\n", "references = 0  # shared or not\n"),
    ),
    mutant(
        "leak on free",
        "every block of a freed request is available",
        "loops.rows",
        ("        release_table(m, row, 0)\n", "        release_table(m, row, 1)\n"),
    ),
    mutant(
        "a freed row stays resident",
        "the number of requests is bounded, and that of the freed ones is not",
        "loops.rows",
        ("        m.counters[RESIDENTS] -= 1\n", ""),
    ),
    mutant(
        "the first block is released first",
        "lru: children go before their parents",
        "loops.rows",
        (
            "for column in range(m.numbers[BLOCKS, row] - 1, keep - 1, -1):",
            "for column in range(keep, m.numbers[BLOCKS, row]):",
        ),
    ),
    mutant(
        "a used block that loses its entry is free",
        "a block is available only without references",
        "loops.blocks",
        ("    if m.blocks[block, REFERENCES] == 0:\n        take_out", "    if True:\n        take_out"),
    ),
)

CHAINS: Final = (
    mutant(
        "the most recent is evicted first",
        "lru: the longest idle goes first",
        "loops.blocks",
        ("    block = m.counters[OLDEST_IDLE]\n", "    block = m.counters[OLDEST_IDLE + 1]\n"),
    ),
    mutant(
        "a hit stays idle",
        "what is hit is not evicted",
        "loops.blocks",
        (
            "        take_out(m, BLOCKS_FIELD, m.blocks, OLDEST_IDLE, block)\n        m.counters[USED]",
            "        m.counters[USED]",
        ),
    ),
    mutant(
        "the one before still leads to what is out",
        "what is hit is not evicted",
        "loops.blocks",
        ("        put(m, field, lines, before, NEXT, after)\n", "        pass\n"),
    ),
    mutant(
        "the one after still comes from what is out",
        "what is hit is not evicted",
        "loops.blocks",
        ("        put(m, field, lines, after, BEFORE, before)\n", "        pass\n"),
    ),
    mutant(
        "a block is taken before the hits are acquired",
        "what is hit is not evicted",
        "loops.rows",
        ("            m.tables[group, row, i] = take(m)\n", "            pass\n"),
        (
            "        use(m, path, 1)\n    for group in range(m.tables.shape[0]):\n        holes, sinks",
            (
                "        use(m, path, 1)\n"
                "    for group in range(m.tables.shape[0]):\n"
                "        for i in range(len(nodes), count):\n"
                "            m.tables[group, row, i] = take(m)\n"
                "    for group in range(m.tables.shape[0]):\n        holes, sinks"
            ),
        ),
    ),
)

HOLDING: Final = (
    mutant(
        "held block handed out",
        "a held block waits for the steps in flight",
        "loops.blocks",
        ("    if m.counters[STEPS]:\n        hold(m, block)\n", ""),
        ("    elif not m.counters[STEPS]:\n", "    else:\n"),
    ),
    mutant(
        "growth takes held blocks",
        "a held block waits for the steps in flight",
        "loops.growth",
        ("num_blocks - m.counters[USED] - m.counters[HELD]", "num_blocks - m.counters[USED]"),
    ),
    mutant(
        "held until every step has ended",
        "only steps begun before the release are waited for",
        "pool",
        (
            "next(iter(steps.values()), int(self._journal.counters[NEXT_STEP]))",
            "-1 if steps else int(self._journal.counters[NEXT_STEP])",
        ),
    ),
    mutant(
        "held for one step more",
        "only steps begun before the release are waited for",
        "loops.blocks",
        ("m.counters[OLDEST_HELD], RELEASE] <= oldest", "m.counters[OLDEST_HELD], RELEASE] < oldest"),
    ),
    mutant(
        "steps of one number",
        "a held block waits for the steps in flight",
        "pool",
        ("        counters[NEXT_STEP] += 1\n", ""),
    ),
    mutant(
        "a hit stays held",
        "need is what is taken off the available blocks",
        "loops.blocks",
        ("        hold_no_more(m, block)\n    put", "    put"),
    ),
    mutant(
        "the latest release comes free first",
        "a held block waits for the steps in flight",
        "loops.blocks",
        ("m.counters[OLDEST_HELD], RELEASE] <= oldest", "m.counters[OLDEST_HELD + 1]] <= oldest"),
        ("        block = m.counters[OLDEST_HELD]\n", "        block = m.counters[OLDEST_HELD + 1]\n"),
    ),
    mutant(
        "what comes free is lost",
        "every block is free, used or idle",
        "loops.blocks",
        (
            "        if m.blocks[block, REFERENCES] == 0 and m.blocks[block, ENTRY] == NOTHING:\n",
            "        if False:\n",
        ),
    ),
    mutant(
        "a held block that is evicted is free",
        "a held block waits for the steps in flight",
        "loops.calls",
        (
            "        if not blocks.is_held(m, block):\n            blocks.push_free(m, block)\n",
            "        blocks.push_free(m, block)\n",
        ),
    ),
)

RELABELLING: Final = (
    mutant(
        "neighbours keep their old names",
        "nothing observable changes",
        "pool",
        ("            blocks[new_block, column] = new_block.take(", "            new_block.take("),
    ),
    mutant(
        "the ends of the chain keep their old names",
        "nothing observable changes",
        "pool",
        ("            counters[end] = new_block[", "            new_block["),
    ),
    mutant(
        "paths know blocks by their old names",
        "nothing observable changes",
        "index",
        ("        holders[holders != NOTHING] = new_block[holders[holders != NOTHING]]\n", ""),
    ),
)
