"""Broken reference managers: sharing, and the ledger of blocks."""

from tests.conformance.illegal_tool import mutant

SHARING = (
    mutant(
        "skipped_copy_on_write",
        "a block with another owner is never written",
        "growth",
        ("shared = [i for i in rewritten if pool.references[entry.table[i]] > 1]", "shared: list[int] = []"),
        needs="fork",
    ),
    mutant(
        "copy_on_write_the_wrong_way_round",
        "a copy goes from the shared block to the private one",
        "growth",
        ("copies.append(copy)", "copies.append(Copy(copy.destination, copy.source))"),
        needs="fork",
    ),
    mutant(
        "copy_on_write_takes_one_copy_for_all",
        "need counts each copy-on-write",
        "growth",
        ("need=fresh + len(shared))", "need=fresh)"),
        needs="fork",
    ),
    mutant(
        "reference_not_counted_on_fork",
        "references = table occurrences + pins",
        "growth",
        ("if block != HOLE:\n                self.pool.share(block)", "pass"),
        needs="fork",
    ),
    mutant(
        "fork_takes_the_lookahead_along",
        "a child's table ends with its length",
        "growth",
        ("del twin.table[ceil_div(twin.length, self.config.block_size) :]", "pass"),
        needs="fork reserve",
    ),
    mutant(
        "freed_while_shared",
        "a block is free only without references",
        "pool",
        ("if self.references[block] > 0:\n            return", "if self.references[block] > 1:\n            return"),
        needs="fork",
    ),
)

ALLOCATION = (
    mutant(
        "table_entries_swapped",
        "the table keeps logical order",
        "growth",
        (
            "entry.tokens.extend(tokens)\n",
            "entry.tokens.extend(tokens)\n        entry.table[-2:] = reversed(entry.table[-2:])\n",
        ),
    ),
    mutant(
        "length_off_by_one",
        "a block is taken only when the last one is full",
        "growth",
        ("blocks = ceil_div(end, size)", "blocks = end // size + 1"),
    ),
    mutant(
        "slots_off_by_one",
        "slot = block * block_size + offset",
        "base",
        ("self.table[p // block_size] * block_size + p % block_size", "self.table[p // block_size] * block_size + p"),
    ),
    mutant(
        "spurious_refusal",
        "refusal is forbidden when need <= available",
        "base",
        ("if need > self.pool.available:", "if need >= self.pool.available:"),
    ),
    mutant(
        "reason_ignores_held_blocks",
        "in_flight: it would fit but for held blocks",
        "base",
        ("Reason.IN_FLIGHT if fits_later else Reason.CAPACITY", "Reason.CAPACITY"),
        needs="overlapped_steps",
    ),
    mutant(
        "limit_of_requests_ignored",
        "at most max_requests are resident",
        "base",
        ("return most is not None and most <= sum", "return most is None and 0 > sum"),
        needs="max_requests",
    ),
    mutant(
        "partial_allocation_kept_after_refusal",
        "refused changes nothing",
        "growth",
        (
            "need=fresh + len(shared))\n        if refusal is not None:\n",
            """need=fresh + len(shared))
        if refusal is not None:
            entry.table.extend([pool.take() for _ in range(min(fresh, pool.available))])
""",
        ),
    ),
    mutant(
        "leak_on_free",
        "drain: every block comes back",
        "residency",
        ("entry)\n        self.free_swap", "entry, keep=1)\n        self.free_swap"),
    ),
    mutant(
        "double_entry_in_free_list",
        "no block stands twice on the free list",
        "pool",
        ("self.free.append(block)\n\n    def forget", "self.free += [block] * 2\n\n    def forget"),
    ),
    mutant(
        "lookahead_kept_after_truncate",
        "table length = ceil(reserved / block_size)",
        "growth",
        ("keep=ceil_div(entry.reserved, size))", "keep=ceil_div(entry.reserved, size) + 1)"),
        needs="truncate",
    ),
    mutant(
        "truncate_keeps_computed",
        "computed <= length",
        "growth",
        ("computed = min(entry.computed, length)", "computed = entry.computed"),
        needs="truncate",
    ),
    mutant(
        "batch_rows_applied_before_misuse",
        "misuse in any row changes nothing at all",
        "manager",
        ("self._check(row, earlier)", "pass"),
        needs="batch",
    ),
    mutant(
        "unpin_in_any_namespace",
        "a pin is of one namespace",
        "prefixes",
        (
            "        if (namespace, path) not in self.pins:",
            (
                "        namespace = next((space for space, text in self.pins if text == path), namespace)\n"
                "        if (namespace, path) not in self.pins:"
            ),
        ),
        needs="pins",
    ),
    mutant(
        "last_sibling_refused",
        "of all who share a block the last writes in place",
        "manager",
        (
            "        return [run(self, row) for row in rows]",
            (
                "        names = {row.request for row in rows} if isinstance(rows[0], Append) else set()\n"
                "        tails = {tuple(self.requests[name].table[-1:]) for name in names}\n"
                "        alone = len(names) == len(rows) > 1 and len(tails) == 1 and () not in tails\n"
                "        if alone and self.pool.available == len(rows) - 1:\n"
                "            from pagedkv.spec.words import Reason, Refused\n"
                "            return [*(run(self, row) for row in rows[:-1]), Refused(Reason.CAPACITY)]\n"
                "        return [run(self, row) for row in rows]"
            ),
        ),
        needs="batch fork",
    ),
)
