"""Named ways to break the optimized manager, each with the law that it breaks; conformance notices every one."""

from typing import Final

from pagedkv.conformance.mutation import Mutant, Replacement

_PACKAGE: Final = "pagedkv.optimized"
_ORDER: Final = (
    "recency", "paths", "events", "index", "pool", "rows", "plan", "groups", "state", "admission", "growth",
    "residency", "planning", "batch", "decode", "commits", "external", "forecast", "invariants", "stats", "footprint",
    "core", "observation", "prefixes", "manager", "subject",
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
        ("shared = tuple(g for g in state.groups if state.pool.references[rewritten[g]] > 1)", "shared = ()"),
    ),
    _mutant(
        "skipped copy-on-write in a batch",
        "a batch equals its rows in order",
        "batch",
        (
            "others = rewriting & (state.pool.references.take(block) > 1)",
            "others = rewriting & (state.pool.references.take(block) > 2)",
        ),
    ),
    _mutant(
        "skipped copy-on-write in decoding",
        "a fork leaves no room to the parent",
        "residency",
        ("    rows.set(ROOM, parent, UNKNOWN)\n", ""),
    ),
    _mutant(
        "copy-on-write the wrong way round",
        "a copy goes from the shared block to the private one",
        "growth",
        ("return Copy(shared, int(block))", "return Copy(int(block), shared)"),
    ),
    _mutant(
        "reference not counted on fork",
        "references = table occurrences + pins",
        "residency",
        (
            "        state.pool.acquire(blocks[: len(blocks) -",
            "        len(blocks[: len(blocks) -",
        ),
    ),
    _mutant(
        "fork takes the lookahead along",
        "a child's table ends with its length",
        "residency",
        (
            "state.pool.acquire(blocks[: len(blocks) - (int(rows.blocks[parent]) - count)])",
            "state.pool.acquire(blocks)",
        ),
    ),
    _mutant(
        "freed while shared",
        "a block is available only without references",
        "pool",
        (
            "self._put_back(blocks[references == 0] if np.count_nonzero(references) else blocks)",
            "self._put_back(blocks[references <= 1])",
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
        "rows",
        (
            "        table[sinks + holes : holes + len(blocks)] = blocks[sinks:]\n",
            "        table[sinks + holes : holes + len(blocks)] = blocks[sinks:][::-1]\n",
        ),
    ),
    _mutant(
        "length off by one",
        "append extends the length by its tokens",
        "growth",
        ("    rows.set(LENGTH, row, end)\n", "    rows.set(LENGTH, row, end - 1)\n"),
    ),
    _mutant(
        "slots off by one in a batch",
        "slots are where the table puts the positions",
        "planning",
        (
            "logical, offsets = np.divmod(positions, bs)",
            "logical, offsets = np.divmod(positions, bs)\n    offsets = (offsets + 1) % bs",
        ),
    ),
    _mutant(
        "slots off by one in decoding",
        "slots are where the table puts the positions",
        "decode",
        (
            "logical, offsets = np.divmod(lengths, np.int32(bs))",
            "logical, offsets = np.divmod(lengths, np.int32(bs))\n    offsets = (offsets + 1) % bs",
        ),
    ),
    _mutant(
        "tokens of another row in decoding",
        "a batch equals its rows in order",
        "decode",
        ("table.tokens.shape[1] + lengths] = tokens", "table.tokens.shape[1] + lengths] = tokens[::-1]"),
    ),
    _mutant(
        "lookahead forgotten in decoding",
        "append never takes slots back",
        "decode",
        ("grown, np.maximum(reserved, grown), room", "grown, grown, room"),
    ),
    _mutant(
        "room after a rollback",
        "a write into an indexed block drops its entry",
        "residency",
        ("    rows.set(ROOM, row, UNKNOWN)\n    rows.set(COMPUTED", "    rows.set(COMPUTED"),
    ),
    _mutant(
        "stale index entry",
        "a write into an indexed block drops its entry",
        "growth",
        (
            "if g not in shared and state.index.entry[rewritten[g]] != NOTHING)",
            "if g < 0)",
        ),
    ),
    _mutant(
        "stale index entry in a batch",
        "a write into an indexed block drops its entry",
        "batch",
        ("alone |= others | (rewriting & (state.index.entry.take(block) != NOTHING))", "alone |= others"),
    ),
    _mutant(
        "evicted block still found",
        "what was handed out is forgotten by the index",
        "pool",
        (
            "        self._index.forget(victims)\n        self.idle -=",
            "        self.idle -=",
        ),
    ),
    _mutant(
        "the most recent is evicted first",
        "lru: the longest idle goes first",
        "recency",
        (
            "live = self._live(self._head, end, belongs)[:count]",
            (
                "end = self._tail\n            candidates = self._order[self._head : end]\n"
                "            live = self._live(self._head, end, belongs)[::-1][:count]"
            ),
        ),
    ),
    _mutant(
        "publication before commit",
        "cached implies computed",
        "growth",
        (
            "computed // bs, int(rows.path[row])",
            "min(rows.reserved[row], rows.length[row]).item() // bs, int(rows.path[row])",
        ),
    ),
    _mutant(
        "a block of a batch of commits is published twice",
        "rule 7: the present entry stays",
        "commits",
        ("simple &= once(starts)", "pass"),
    ),
    _mutant("a batch of commits out of order", "a batch equals its rows in order", "commits", ("and not several ", "")),
    _mutant(
        "eviction of a pinned block",
        "a pin keeps its blocks",
        "prefixes",
        ("        state.pool.acquire(blocks)\n        state.journal", "        state.journal"),
    ),
    _mutant(
        "partial allocation kept after a refusal",
        "refused changes nothing",
        "growth",
        (
            "    if need.refused:\n",
            "    if need.refused:\n        state.pool.take(min(need.fresh, state.pool.available, 1))\n",
        ),
    ),
    _mutant(
        "held block handed out",
        "a held block waits for the steps in flight",
        "pool",
        (
            "        if self.steps:\n            self._journal.put(self._next",
            "        if False:\n            self._journal.put(self._next",
        ),
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
        "a hit on a held block counts twice",
        "need is what is taken off the available blocks",
        "admission",
        ("- sum(holes) - owned - held", "- sum(holes) - owned"),
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
        ("(len(tokens) - 1) // bs if reads", "len(tokens) // bs if reads"),
    ),
    _mutant(
        "wrong namespace hit",
        "identity is the namespace and the whole path",
        "paths",
        ("root = self.roots.get(namespace, NOTHING)", "root = next(iter(self.roots.values()), NOTHING)"),
    ),
    _mutant(
        "window released one token early",
        "a position that a rollback may see is not dead",
        "groups",
        (
            "dead = computed - window + 1 - (self._max_rollback if rollback else 0)",
            "dead = computed - window + 2 - (self._max_rollback if rollback else 0)",
        ),
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
        ("    state.num_swap_free += len(info.saved)\n", "    state.num_swap_free += len(info.saved) - 1\n"),
    ),
    _mutant(
        "lookahead kept after truncate",
        "table length is ceil(reserved / block_size)",
        "residency",
        (
            "release_table(state, row, keep=ceil_div(reserved, bs))",
            "release_table(state, row, keep=ceil_div(reserved, bs) + 1)",
        ),
    ),
    _mutant(
        "leak on free",
        "every block of a freed request is available",
        "residency",
        ("table.live(group, row)[::-1])\n    else", "table.live(group, row)[:0:-1])\n    else"),
    ),
    _mutant(
        "a line is followed though its tokens differ",
        "a hit compares the tokens",
        "paths",
        ("return nodes if same[different] else nodes[: different // bs]", "return nodes"),
    ),
    _mutant(
        "a branch is followed though its tokens differ",
        "a hit compares the tokens",
        "paths",
        (
            "node = self._others.get(self._hash(_name(parent), tokens.tobytes()), NOTHING)",
            "node = next(iter(self._others.values()), NOTHING)",
        ),
        (
            "while node != NOTHING and not (self.parent[node] == parent and (self.tokens[node] == tokens).all()):",
            "while False:",
        ),
    ),
)
