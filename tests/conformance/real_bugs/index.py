"""Bugs of the prefix index: what enters it, what leaves it, and where a match ends."""

from typing import Final

from tests.conformance.illegal import ILLEGAL
from tests.conformance.illegal_tool import mutant
from tests.conformance.real_bugs.records import CRASH, Record

_HITS: Final = "hits are the longest published prefix, with one token left to compute"
_ENTRIES: Final = "entries name what their block holds, once it is computed"

PUBLISHED_TOO_FAR: Final = mutant(
    "published_as_far_as_planned",
    "cached implies computed",
    "growth",
    ("range(old // size, entry.computed // size)", "range(old // size, min(entry.reserved, entry.length) // size)"),
)

ENTERING: Final = (
    Record(
        "B022",
        mutant(
            "hash_kept_by_a_second_copy",
            "a block that is taken holds nothing, of whichever copy",
            "pool",
            (
                "from pagedkv.reference.index import PrefixIndex\n",
                """from pagedkv.reference.index import PrefixIndex as Index


class PrefixIndex(Index):
    def __init__(self, block_size):
        super().__init__(block_size)
        self.hash_of = {}

    def insert(self, prefix, block, written=True):
        assert block not in self.hash_of, "a block to be published that has a hash"
        self.hash_of[block] = prefix
        return super().insert(prefix, block, written)

    def remove(self, block):  # not called for a copy that is in no entry, so that its hash stays
        super().remove(block)
        self.hash_of.pop(block, None)
""",
            ),
        ),
        CRASH,
        8,
    ),
    Record(
        "B023",
        mutant(
            "second_copy_without_a_hash",
            "a request goes on with a copy that is not indexed",
            "growth",
            (
                "            block = entry.table[i]\n",
                """            assert not i or entry.table[i - 1] in self.pool.index, "a full block without a hash"
            block = entry.table[i]
""",
            ),
        ),
        CRASH,
        10,
        nearest="one entry a prefix is the rule here, too: with the indexed copy gone the other is missed, never wrong",
    ),
    Record(
        "B026",
        mutant(
            "replaced_suffix_keeps_its_hash",
            "an entry names the tokens that its block holds",
            "growth",
            ("        del entry.prefixes[length // size :]\n", ""),
        ),
        _ENTRIES,
        6,
    ),
    Record(
        "B028",
        mutant(
            "published_from_the_beginning",
            "a block enters the index when it is computed, once",
            "growth",
            ("range(old // size, entry.computed // size)", "range(entry.computed // size)"),
        ),
        _ENTRIES,
        7,
        nearest="an entry that is there stays, so inserting again shows where the entries have been reset",
    ),
    Record("B181", PUBLISHED_TOO_FAR, _ENTRIES, 5),
    Record("B241", PUBLISHED_TOO_FAR, _ENTRIES, 3),
    Record(
        "B225",
        mutant(
            "nothing_published_before_the_window",
            "what the window has passed is cached like everything else",
            "growth",
            (
                "range(old // size, entry.computed // size)",
                "range(max(old, entry.computed - (self.config.sliding_window or old)) // size, entry.computed // size)",
            ),
        ),
        "entries go only by eviction",
        3,
    ),
)

LEAVING: Final = (
    Record(
        "B020",
        mutant(
            "evicted_and_still_indexed",
            "what is handed out is forgotten by the index",
            "pool",
            (
                "            self.forget(self.choose_victim(self.held))\n",
                """            victim = self.choose_victim(self.held)
            del self.index.idle[victim]
            self.free.append(victim)
""",
            ),
        ),
        _ENTRIES,
        6,
    ),
    Record(
        "B021",
        mutant(
            "reset_block_left_in_the_map",
            "an entry goes from the index in both directions",
            "index",
            ("        del self.block_of[prefix]\n", ""),
            ("prefix = self.prefix_of[block]  # the", "prefix = self.prefix_of.get(block, prefix)  # the"),
        ),
        _HITS,
        7,
    ),
    Record(
        "B046",
        mutant(
            "let_go_by_the_window_and_lost",
            "what the window lets go of stays cached",
            "growth",
            (
                "            self.pool.release(entry.table[i])\n            entry",
                """            self.pool.forget(entry.table[i])
            self.pool.release(entry.table[i])
            entry""",
            ),
        ),
        "entries go only by eviction",
        3,
        nearest="what the window lets go of is kept as an idle cached block here, not in another tier",
    ),
    Record(
        "B112",
        mutant(
            "nothing_kept_before_the_last_window",
            "a hit is a chain from the beginning",
            "residency",
            (
                "        self._release_table(entry)\n        self.free_swap",
                """        if self.config.sliding_window is not None:  # what the last query sees is kept
            last = (entry.computed - self.config.sliding_window) // self.config.block_size
            for block in entry.table[entry.holes : last]:
                self.pool.forget(block)
        self._release_table(entry)
        self.free_swap""",
            ),
        ),
        "entries go only by eviction",
        4,
        nearest="one pool, one block size: the retention alone is re-created",
    ),
)

MATCHING: Final = (
    Record(
        "B027",
        mutant(
            "whole_hit_counted_in_tokens",
            "hits are whole blocks",
            "residency",
            ("[: (entry.length - 1) // size]", ""),
            ("cached = len(hits) * size", "cached = min(len(hits) * size, entry.length - 1)"),
        ),
        _HITS,
        5,
    ),
    Record(
        "B044",
        mutant(
            "match_goes_on_after_a_gap",
            "a match ends at the first block that is not there",
            "index",
            (
                "            if block is None:\n                break\n",
                "            if block is None:\n                continue\n",
            ),
        ),
        _HITS,
        7,
    ),
    Record("B103", ILLEGAL["hit_leaves_nothing_to_compute"], _HITS, 5),
    Record(
        "B104",
        mutant(
            "planned_before_its_own_blocks_were_hit",
            "resume answers what it found",
            "residency",
            (
                "            return self._place(entry, entry.length)\n",
                """            planned = Ok()
            outcome = self._place(entry, entry.length)
            return planned if isinstance(outcome, Ok) else outcome
""",
            ),
        ),
        _HITS,
        6,
    ),
    Record("B106", ILLEGAL["hit_evicted_by_its_own_admission"], "only an available block is handed out", 8),
    Record(
        "B107",
        mutant(
            "first_block_of_a_key_that_has_none",
            "a text shorter than a block hits nothing",
            "index",
            (
                "        prefix: Prefix | None = None\n",
                """        whole = tokens[: len(tokens) // self.block_size * self.block_size]
        assert whole[0] >= 0, "a token"
        prefix: Prefix | None = None
""",
            ),
        ),
        CRASH,
        6,
        nearest="the other half, lengths of keys taken for those of values, has no place where blocks are counted",
    ),
    Record(
        "B111",
        mutant(
            "hits_in_longer_blocks_than_asked",
            "a hit is counted in blocks of block_size tokens",
            "index",
            ("        return blocks\n", "        return blocks[: len(blocks) // 2 * 2]\n"),
        ),
        _HITS,
        5,
        nearest="that only whole blocks are hit is the rule; the mutant makes them longer than they are",
    ),
)
