"""Broken optimized managers: what a request has, how a batch makes it grow, and what is refused."""

from typing import Final

from tests.conformance.broken_manager_tool import mutant

ROWS: Final = (
    mutant(
        "table entries swapped",
        "the table keeps logical order",
        "loops.rows",
        (
            "                m.tables[group, row, i] = m.links[nodes[i], HOLDERS + group]\n",
            "                m.tables[group, row, i] = m.holders[nodes[len(nodes) - 1 - i], group]\n",
        ),
    ),
    mutant(
        "length off by one",
        "append extends the length by its tokens",
        "loops.growth",
        ("    set_number(m, LENGTH, row, end)\n", "    set_number(m, LENGTH, row, end - 1)\n"),
    ),
    mutant(
        "a table that has grown is as long as before",
        "table length is ceil(reserved / block_size)",
        "loops.growth",
        ("        set_number(m, BLOCKS, row, total)\n", ""),
    ),
    mutant(
        "room for one token is room for all",
        "table length is ceil(reserved / block_size)",
        "loops.growth",
        ("if m.numbers[ROOM, row] < count or", "if m.numbers[ROOM, row] < 1 or"),
    ),
    mutant(
        "lookahead forgotten in decoding",
        "append never takes slots back",
        "loops.growth",
        (
            "    if end > m.numbers[RESERVED, row]:\n",
            "    if True:\n",
        ),
    ),
    mutant(
        "lookahead kept after truncate",
        "table length is ceil(reserved / block_size)",
        "residency",
        (
            "release_table(state, row, keep=ceil_div(reserved, bs))",
            "release_table(state, row, keep=ceil_div(reserved, bs) + 1)",
        ),
    ),
)

BATCHES: Final = (
    mutant(
        "slots off by one",
        "slots are where the table puts the positions",
        "loops.growth",
        ("(start + i) % block_size", "(start + i + 1) % block_size"),
    ),
    mutant(
        "slots of the row before",
        "a batch equals its rows in order",
        "loops.batches",
        ("growth.slots(m, rows[i], starts[i],", "growth.slots(m, rows[i], starts[max(0, i - 1)],"),
    ),
    mutant(
        "tokens of the first row",
        "a batch equals its rows in order",
        "loops.batches",
        ("growth.append(m, row, tokens, first, count,", "growth.append(m, row, tokens, 0, count,"),
    ),
    mutant(
        "copies of the first row",
        "a batch equals its rows in order",
        "loops.batches",
        ("COPY_ROW] = i\n", "COPY_ROW] = 0\n"),
    ),
    mutant(
        "a batch of commits out of order",
        "a batch equals its rows in order",
        "commits",
        (
            "    done, known = 0, NOTHING\n",
            "    rows, computed, done, known = rows[::-1].copy(), computed[::-1].copy(), 0, -1\n",
        ),
    ),
    mutant(
        "a batch of commits past what is reserved",
        "computed <= reserved",
        "loops.calls",
        ("<= computed[i] <= last:", "<= computed[i]:"),
    ),
    mutant(
        "the path of one row is that of the next",
        "an entry names what its block holds",
        "loops.calls",
        ("        known = NOTHING\n", ""),
    ),
)

REFUSING: Final = (
    mutant(
        "partial allocation kept after a refusal",
        "refused changes nothing",
        "loops.growth",
        (
            "    if refused:\n",
            (
                "    if refused and m.counters[USED] + m.counters[HELD] < m.blocks.shape[1]:\n"
                "        take(m)\n"
                "    if refused:\n"
            ),
        ),
    ),
    mutant(
        "a copy-on-write needs nothing",
        "need counts each copy-on-write",
        "loops.growth",
        ("m.blocks[m.tables[group, row, first], REFERENCES] > 1", "False"),
    ),
    mutant(
        "a hit on a held block counts twice",
        "need is what is taken off the available blocks",
        "admission",
        ("- hit.owned - hit.held", "- hit.owned"),
    ),
    mutant(
        "a hit on an idle block needs nothing",
        "need is what is taken off the available blocks",
        "loops.rows",
        ("m.blocks[block, REFERENCES] > 0", "True"),
    ),
    mutant(
        "spurious refusal",
        "refusal is forbidden when need <= available",
        "state",
        ("        if need > self.pool.available:", "        if need >= self.pool.available and need:"),
    ),
    mutant(
        "spurious refusal of growth",
        "refusal is forbidden when need <= available",
        "loops.growth",
        ("    if need <= available:\n", "    if need < available or not need:\n"),
    ),
    mutant(
        "growth is not told to wait",
        "in_flight: it would fit but for held blocks",
        "loops.growth",
        ("return IN_FLIGHT if need <= available + m.counters[HELD] else CAPACITY", "return CAPACITY"),
    ),
    mutant(
        "what a window has released still counts",
        "unservable: it never fits",
        "loops.growth",
        ("        total -= m.numbers[HOLES + group, row]\n", "        pass\n"),
    ),
)

WINDOWS: Final = (
    mutant(
        "window released one token early",
        "a position that a rollback may see is not dead",
        "loops.rows",
        ("(computed - visible) // m.spelled.shape[1]", "(computed - visible + 1) // m.spelled.shape[1]"),
    ),
    mutant(
        "a window releases one block more",
        "a position that a query may see is not dead",
        "loops.rows",
        (
            "new = holes_of(m, group, m.numbers[COMPUTED, row])",
            "new = holes_of(m, group, m.numbers[COMPUTED, row]) + 1",
        ),
    ),
    mutant(
        "a window releases nothing",
        "what is dead is available at once",
        "loops.rows",
        ("    release_dead(m, row)\n    return True\n", "    return True\n"),
    ),
    mutant(
        "a window keeps its last dead block",
        "what is dead is available at once",
        "loops.rows",
        ("range(sinks + new - 1, sinks + old - 1, -1)", "range(sinks + new - 2, sinks + old - 1, -1)"),
    ),
    mutant(
        "sinks are released",
        "sinks stay behind the window",
        "loops.rows",
        ("range(sinks + new - 1, sinks + old - 1, -1)", "range(new - 1, old - 1, -1)"),
    ),
)

SWAPPING: Final = (
    mutant(
        "swap copies in the wrong order",
        "swap restores byte for byte",
        "residency",
        ("return Ok(swapped=pairs(saved, blocks))", "return Ok(swapped=pairs(saved, blocks[::-1]))"),
    ),
    mutant(
        "swap space is not returned",
        "swap space is bounded, and free when it is free",
        "residency",
        (
            "    state.journal.counters[NUM_SWAP_FREE] += len(info.saved)\n",
            "    state.journal.counters[NUM_SWAP_FREE] += len(info.saved) - 1\n",
        ),
    ),
    mutant(
        "table entries swapped on the way back",
        "the table keeps logical order",
        "rows",
        (
            "        table[sinks + holes : holes + len(blocks)] = blocks[sinks:]\n",
            "        table[sinks + holes : holes + len(blocks)] = blocks[sinks:][::-1]\n",
        ),
    ),
)
