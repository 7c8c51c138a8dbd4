"""Named ways to break the reference manager; conformance notices every one.

`breaks` names the law. `needs` says what a run has to exercise before anything can be seen of it: a capability, an
option of the configuration, or "policy", for what only the order of eviction shows.
"""

from typing import Final

from pagedkv.conformance.mutation import Mutant, Replacement

_PACKAGE: Final = "pagedkv.reference"
_ORDER: Final = ("arguments", "index", "pool", "base", "residency", "growth", "prefixes", "manager")
"""In import order: what comes after a module may have taken something from it."""


def _mutant(name: str, breaks: str, module: str, *replacements: Replacement, needs: str = "") -> Mutant:
    later = _ORDER[_ORDER.index(module) + 1 :]
    return Mutant(
        name,
        breaks,
        f"{_PACKAGE}.{module}",
        replacements,
        dependents=tuple(f"{_PACKAGE}.{dependent}" for dependent in later),
        attribute="BlockManager",
        needs=frozenset(needs.split()),
    )


_SHARING = (
    _mutant(
        "skipped_copy_on_write",
        "a block with another owner is never written",
        "growth",
        ("shared = [i for i in rewritten if pool.references[entry.table[i]] > 1]", "shared: list[int] = []"),
        needs="fork",
    ),
    _mutant(
        "copy_on_write_the_wrong_way_round",
        "a copy goes from the shared block to the private one",
        "growth",
        ("copies.append(copy)", "copies.append(Copy(copy.destination, copy.source))"),
        needs="fork",
    ),
    _mutant(
        "copy_on_write_takes_one_copy_for_all",
        "need counts each copy-on-write",
        "growth",
        ("need=fresh + len(shared))", "need=fresh)"),
        needs="fork",
    ),
    _mutant(
        "reference_not_counted_on_fork",
        "references = table occurrences + pins",
        "growth",
        ("for block in twin.table[twin.holes :]:\n            self.pool.share(block)", "pass"),
        needs="fork",
    ),
    _mutant(
        "fork_takes_the_lookahead_along",
        "a child's table ends with its length",
        "growth",
        ("del twin.table[ceil_div(twin.length, self.config.block_size) :]", "pass"),
        needs="fork reserve",
    ),
    _mutant(
        "freed_while_shared",
        "a block is free only without references",
        "pool",
        ("if self.references[block] > 0:\n            return", "if self.references[block] > 1:\n            return"),
        needs="fork",
    ),
)

_ALLOCATION = (
    _mutant(
        "table_entries_swapped",
        "the table keeps logical order",
        "growth",
        (
            "entry.tokens.extend(tokens)\n",
            "entry.tokens.extend(tokens)\n        entry.table[-2:] = reversed(entry.table[-2:])\n",
        ),
    ),
    _mutant(
        "length_off_by_one",
        "a block is taken only when the last one is full",
        "growth",
        ("blocks = ceil_div(end, size)", "blocks = end // size + 1"),
    ),
    _mutant(
        "slots_off_by_one",
        "slot = block * block_size + offset",
        "base",
        ("self.table[p // block_size] * block_size + p % block_size", "self.table[p // block_size] * block_size + p"),
    ),
    _mutant(
        "spurious_refusal",
        "refusal is forbidden when need <= available",
        "base",
        ("if need > self.pool.available:", "if need >= self.pool.available:"),
    ),
    _mutant(
        "reason_ignores_held_blocks",
        "in_flight: it would fit but for held blocks",
        "base",
        ("Reason.IN_FLIGHT if fits_later else Reason.CAPACITY", "Reason.CAPACITY"),
        needs="overlapped_steps",
    ),
    _mutant(
        "limit_of_requests_ignored",
        "at most max_requests are resident",
        "base",
        ("return most is not None and most <= sum", "return most is None and 0 > sum"),
        needs="max_requests",
    ),
    _mutant(
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
    _mutant(
        "leak_on_free",
        "drain: every block comes back",
        "residency",
        ("entry)\n        self.free_swap", "entry, keep=1)\n        self.free_swap"),
    ),
    _mutant(
        "double_entry_in_free_list",
        "no block stands twice on the free list",
        "pool",
        ("self.free.append(block)\n\n    def forget", "self.free += [block] * 2\n\n    def forget"),
    ),
    _mutant(
        "lookahead_kept_after_truncate",
        "table length = ceil(reserved / block_size)",
        "growth",
        ("keep=ceil_div(entry.reserved, size))", "keep=ceil_div(entry.reserved, size) + 1)"),
        needs="truncate",
    ),
    _mutant(
        "truncate_keeps_computed",
        "computed <= length",
        "growth",
        ("computed = min(entry.computed, length)", "computed = entry.computed"),
        needs="truncate",
    ),
    _mutant(
        "batch_rows_applied_before_misuse",
        "misuse in any row changes nothing at all",
        "manager",
        ("self._check(row, earlier)", "pass"),
        needs="batch",
    ),
)

_INDEX = (
    _mutant(
        "stale_index_entry",
        "a write into an indexed block drops its entry",
        "growth",
        ("pool.forget(entry.table[i])", "pass"),
        needs="prefix_cache truncate",
    ),
    _mutant(
        "publication_before_commit",
        "cached implies computed",
        "base",
        ('if not self.config.prefix_cache or self.config.publish != "schedule":', "if not self.config.prefix_cache:"),
        needs="prefix_cache",
    ),
    _mutant(
        "publication_of_a_partial_block",
        "only full blocks are indexed",
        "growth",
        ("range(old // size, entry.computed // size):", "range(old // size, -(-entry.computed // size)):"),
        needs="prefix_cache",
    ),
    _mutant(
        "eviction_of_a_pinned_block",
        "a pinned block is never evicted",
        "prefixes",
        ("for block in hits:\n            self.pool.share(block)", "pass"),
        ("for block in reversed(pins.pop()):\n            self.pool.release(block)", "pins.pop()"),
        needs="pins",
    ),
    _mutant(
        "pins_do_not_nest",
        "pins nest",
        "prefixes",
        ("self.pins.setdefault((namespace, path), []).append(hits)", "self.pins[namespace, path] = [hits]"),
        needs="pins",
    ),
    _mutant(
        "pins_forgotten_by_permute",
        "relabelling changes nothing observable",
        "manager",
        ("pins[:] = [[labels[block] for block in blocks] for blocks in pins]", "pass"),
        needs="pins permute",
    ),
    _mutant(
        "hit_leaves_nothing_to_compute",
        "at least one token is left to compute",
        "residency",
        ("[: (entry.length - 1) // size]", "[: entry.length // size]"),
        needs="prefix_cache",
    ),
    _mutant(
        "wrong_namespace_hit",
        "identity is the pair (namespace, tokens)",
        "index",
        (" or self.namespace != other.namespace:", ":"),
        ("namespace if parent is None else parent._hash", "0 if parent is None else parent._hash"),
        needs="prefix_cache",
    ),
    _mutant(
        "hash_ignores_last_token",
        "a hit compares the tokens",
        "index",
        ("mine.block_tokens != theirs.block_tokens:", "mine.block_tokens[:-1] != theirs.block_tokens[:-1]:"),
        ("parent._hash, block_tokens))", "parent._hash, block_tokens[:-1]))"),
        needs="prefix_cache",
    ),
    _mutant(
        "path_ignored",
        "identity is the whole token path",
        "index",
        ("mine, theirs = mine.parent, theirs.parent", "break"),
        ("namespace if parent is None else parent._hash", "namespace"),
        needs="prefix_cache",
    ),
    _mutant(
        "hit_evicted_by_its_own_admission",
        "no block hit by an operation is evicted by it",
        "residency",
        ("for block in live:  # first, so that no hit is evicted\n            pool.share(block)", "pass"),
        (
            "range(ceil_div(reserved, size) - len(hits))]\n",
            "range(ceil_div(reserved, size) - len(hits))]\n        for block in live:\n            pool.share(block)\n",
        ),
        needs="prefix_cache",
    ),
    _mutant(
        "idle_hit_not_needed",
        "need counts hits that nobody refers to",
        "residency",
        ("sum(pool.references[block] > 0 for block in live)", "len(live)"),
        needs="prefix_cache",
    ),
    _mutant(
        "reset_keeps_used_entries",
        "reset drops every entry",
        "prefixes",
        ("for block in list(self.pool.index.prefix_of):", "for block in list(self.pool.index.idle):"),
        needs="evict",
    ),
    _mutant(
        "deduplication_in_flight",
        "never remapped while a step is in flight",
        "growth",
        (" and not self.pool.steps:  # a step", ":  # a step"),
        needs="dedup overlapped_steps",
    ),
    _mutant(
        "refused_changes_recency",
        "refused changes nothing, recency included",
        "residency",
        (
            "refusal = self._refusal(ceil_div(entry.length, size) - holes, need, joins=True)\n",
            """refusal = self._refusal(ceil_div(entry.length, size) - holes, need, joins=True)
        for block in hits:
            if block in pool.index.idle:
                pool.index.idle.move_to_end(block)
""",
        ),
        needs="prefix_cache policy",
    ),
    _mutant(
        "most_recent_evicted_first",
        "policy lru",
        "index",
        ("for block in self.idle:", "for block in reversed(self.idle):"),
        needs="prefix_cache policy",
    ),
)

_TIME = (
    _mutant(
        "held_block_handed_out",
        "a held block is not handed out",
        "pool",
        ("if self.steps:\n            self.held[block] = set(self.steps)", "pass"),
        ("elif not self.steps:\n", "else:\n"),
        needs="overlapped_steps",
    ),
    _mutant(
        "held_for_the_latest_step_only",
        "held until every step begun before the release has ended",
        "pool",
        ("self.held[block] = set(self.steps)", "self.held[block] = {next(reversed(self.steps))}"),
        needs="overlapped_steps",
    ),
    _mutant(
        "held_until_no_step_is_in_flight",
        "held by exactly the steps begun before the release",
        "pool",
        ("if not self.held[block]:", "if not self.steps:"),
        needs="overlapped_steps",
    ),
    _mutant(
        "window_released_one_token_early",
        "a position is dead once no query can see it",
        "base",
        ("self.config.sliding_window + 1 -", "self.config.sliding_window + 2 -"),
        needs="sliding_window",
    ),
    _mutant(
        "rollback_not_kept",
        "max_rollback positions beyond the window are kept",
        "base",
        (" - self.config.max_rollback", ""),
        needs="sliding_window",
    ),
    _mutant(
        "truncate_below_the_window",
        "no query sees a released position",
        "growth",
        ("return Refused(Reason.RELEASED)", "pass"),
        needs="sliding_window truncate",
    ),
    _mutant(
        "swap_copy_in_wrong_order",
        "what was saved comes back byte for byte",
        "residency",
        ("map(Copy, entry.saved, fresh)", "map(Copy, reversed(entry.saved), fresh)"),
        needs="swap",
    ),
    _mutant(
        "swap_loses_the_holes",
        "a resumed table keeps logical order",
        "residency",
        ("[HOLE] * entry.holes + fresh", "fresh + [HOLE] * entry.holes"),
        needs="swap sliding_window",
    ),
    _mutant(
        "swap_block_used_twice",
        "a swap block holds one block",
        "residency",
        ("[self.free_swap.pop() for _ in live]", "self.free_swap[-len(live) :]"),
        needs="swap",
    ),
    _mutant(
        "swap_space_leaks_on_resume",
        "swap space is free after resume",
        "residency",
        ("self.free_swap += entry.saved\n        entry.table", "entry.table"),
        needs="swap",
    ),
    _mutant(
        "swap_space_leaks_on_free",
        "swap space is free after free",
        "residency",
        ("self.free_swap += entry.saved\n        del", "del"),
        needs="swap",
    ),
    _mutant(
        "swap_space_unbounded",
        "swap space is bounded",
        "residency",
        ("return Refused(Reason.SWAP_SPACE)", "self.free_swap += range(len(live))"),
        needs="swap",
    ),
    _mutant(
        "resume_takes_blocks_back_unasked",
        "resume needs as many available blocks as it saved",
        "residency",
        ("need=len(entry.saved), joins=True", "need=0, joins=True"),
        needs="swap",
    ),
)

ILLEGAL: dict[str, Mutant] = {mutant.name: mutant for mutant in (*_SHARING, *_ALLOCATION, *_INDEX, *_TIME)}
"""By name. `ILLEGAL[name].load()` is the broken `BlockManager`."""
