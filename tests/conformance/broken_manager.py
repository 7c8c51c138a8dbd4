"""Named ways to break the optimized manager; conformance notices every one.

Each replaces a piece of the source text and names the law that it breaks.
"""

from typing import Final

from pagedkv.conformance.mutation import Mutant, Replacement

_PACKAGE: Final = "pagedkv.optimized"
_ORDER: Final = (
    "recency", "index", "pool", "rows", "plan", "state", "admission", "growth", "residency", "batch", "invariants",
    "stats", "manager", "subject",
)  # fmt: skip
"""In import order: what comes after a module may have taken something from it."""


def _mutant(name: str, breaks: str, module: str, *replacements: Replacement) -> Mutant:
    later = _ORDER[_ORDER.index(module) + 1 :]
    dependents = tuple(f"{_PACKAGE}.{dependent}" for dependent in later)
    return Mutant(name, breaks, f"{_PACKAGE}.{module}", replacements, dependents, attribute="OptimizedSubject")


BROKEN_MANAGERS: Final = (
    _mutant(
        "skipped copy-on-write",
        "a block with another owner is never written",
        "growth",
        ("shared = first < count and int(pool.references[block]) > 1", "shared = False"),
    ),
    _mutant(
        "skipped copy-on-write in a batch",
        "a batch equals its rows in order",
        "batch",
        (
            "shared = rewriting & (state.pool.references[block] > 1)",
            "shared = rewriting & (state.pool.references[block] > 2)",
        ),
    ),
    _mutant(
        "copy-on-write the wrong way round",
        "a copy goes from the shared block to the private one",
        "growth",
        ("return Copy(int(old[0]), int(new[0]))", "return Copy(int(new[0]), int(old[0]))"),
    ),
    _mutant(
        "reference not counted on fork",
        "references = table occurrences + pins",
        "residency",
        ("    state.pool.acquire(shared)\n", ""),
    ),
    _mutant(
        "freed while shared",
        "a block is available only without references",
        "pool",
        (
            "self._put_back(blocks[self.references[blocks] == 0])",
            "self._put_back(blocks[self.references[blocks] <= 1])",
        ),
    ),
    _mutant(
        "freed while shared, in a batch",
        "shared blocks survive",
        "pool",
        ("np.subtract.at(self.references, blocks, 1)", "self.references[blocks] = 0  # shared or not"),
    ),
    _mutant(
        "table entries swapped",
        "the table keeps logical order",
        "admission",
        (
            "state.pool.take(entry.fresh))",
            "state.pool.take(entry.fresh))\n    rows.live(row)[:] = rows.live(row)[::-1].copy()",
        ),
    ),
    _mutant(
        "length off by one",
        "append extends the length by its tokens",
        "growth",
        ("rows.length[row] = end\n", "rows.length[row] = end - 1\n"),
    ),
    _mutant(
        "slots off by one in a batch",
        "slots are where the table puts the positions",
        "batch",
        ("where: Int64 = blocks * bs + positions % bs", "where: Int64 = blocks * bs + (positions + 1) % bs"),
    ),
    _mutant(
        "stale index entry",
        "a write into an indexed block drops its entry",
        "growth",
        ("elif first < count and state.index.indexed[block]:", "elif False:"),
    ),
    _mutant(
        "stale index entry in a batch",
        "a write into an indexed block drops its entry",
        "batch",
        ("rewriting & ~shared & state.index.indexed[block],", "rewriting & (shared & ~shared),"),
    ),
    _mutant(
        "evicted block still found",
        "what was handed out is forgotten by the index",
        "pool",
        ("            self._index.forget(victims)\n            self.evictions", "            self.evictions"),
    ),
    _mutant(
        "the most recent is evicted first",
        "lru: the longest idle goes first",
        "pool",
        (
            "            victims = self.idle.pop(count - from_stack)\n",
            (
                "            victims = self.idle.blocks()[::-1][: count - from_stack].copy()\n"
                "            self.idle.remove(victims)\n"
            ),
        ),
    ),
    _mutant(
        "publication before commit",
        "cached implies computed",
        "growth",
        (
            "    rows.computed[row] = computed\n",
            "    rows.computed[row] = computed\n    computed = min(int(rows.reserved[row]), int(rows.length[row]))\n",
        ),
    ),
    _mutant(
        "eviction of a pinned block",
        "a pin keeps its blocks",
        "manager",
        ("        state.pool.acquire(blocks)\n        state.pins", "        state.pins"),
    ),
    _mutant(
        "partial allocation kept after a refusal",
        "refused changes nothing",
        "growth",
        (
            "        return refused\n    rows",
            "        if fresh and pool.available:\n            pool.take(1)\n        return refused\n    rows",
        ),
    ),
    _mutant(
        "held block handed out",
        "a held block waits for the steps in flight",
        "pool",
        ("        if self.steps:\n            self.held.update", "        if False:\n            self.held.update"),
    ),
    _mutant(
        "held until every step has ended",
        "only steps begun before the release are waited for",
        "pool",
        (
            "oldest = next(iter(self.steps.values()), self._next_step)",
            "oldest = self._next_step if not self.steps else -1",
        ),
    ),
    _mutant(
        "spurious refusal",
        "refusal is forbidden when need <= available",
        "state",
        ("        if need > self.pool.available:", "        if need >= self.pool.available and need:"),
    ),
    _mutant(
        "hit that leaves nothing to compute",
        "at least one token is left to compute",
        "admission",
        ("(len(tokens) - 1) // bs)", "len(tokens) // bs)"),
    ),
    _mutant(
        "wrong namespace hit",
        "identity is the namespace and the whole path",
        "index",
        (
            "parent, data = self._roots.get(namespace), tokens",
            "parent, data = next(iter(self._roots.values()), None), tokens",
        ),
    ),
    _mutant(
        "window released one token early",
        "a position that a rollback may see is not dead",
        "state",
        ("dead = computed - window + 1 - self", "dead = computed - window + 2 - self"),
    ),
    _mutant(
        "swap copies in the wrong order",
        "swap restores byte for byte",
        "residency",
        ("return Ok(swapped=pairs(saved, blocks))", "return Ok(swapped=pairs(saved, blocks[::-1]))"),
    ),
    _mutant(
        "swap space is not returned",
        "swap space is bounded, and free when it is free",
        "residency",
        ("state.swap_free += saved[::-1].tolist()", "state.swap_free += saved[1:][::-1].tolist()"),
    ),
    _mutant(
        "lookahead kept after truncate",
        "table length is ceil(reserved / block_size)",
        "residency",
        (
            "state.release_table(row, keep=ceil_div(reserved, bs))",
            "state.release_table(row, keep=ceil_div(reserved, bs) + 1)",
        ),
    ),
    _mutant(
        "leak on free",
        "every block of a freed request is available",
        "residency",
        ("state.pool.release(live[0])", "state.pool.release(live[0][:-1])"),
    ),
    _mutant(
        "hash ignores the last token and is trusted",
        "a hit compares the tokens",
        "index",
        ("blake2b(parent + tokens,", "blake2b(parent + tokens[:-4],"),
        ("node.tokens == tokens)", "node.tokens[:-4] == tokens[:-4])"),
    ),
)
