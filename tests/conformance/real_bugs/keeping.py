"""Bugs of keeping: eviction and its order, pins, reset, and a window shorter than a block."""

from typing import Final

from tests.conformance.illegal import ILLEGAL
from tests.conformance.illegal_tool import mutant
from tests.conformance.real_bugs.records import Record

_AVAILABLE: Final = "counts add up"
_EVICTED: Final = "evict drops what was asked for, if there is as much"

EVICTING: Final = (
    Record(
        "B036",
        mutant(
            "skipped_blocks_counted",
            "evict drops what was asked for",
            "prefixes",
            (
                """        for _ in range(evicted):
            self.pool.forget(self.pool.choose_victim(skip=()))
        return Ok(evicted=evicted)
""",
                """        dropped = 0
        for block in list(self.pool.index.prefix_of)[:evicted]:
            if self.pool.references[block] == 0:
                self.pool.forget(block)
                dropped += 1
        return Ok(evicted=dropped)
""",
            ),
        ),
        _EVICTED,
        7,
    ),
    Record(
        "B119",
        mutant(
            "eviction_without_a_limit",
            "evict drops no more than was asked for",
            "prefixes",
            ("        for _ in range(evicted):\n", "        while self.pool.index.idle:\n"),
        ),
        _EVICTED,
        11,
    ),
    Record(
        "B128",
        mutant(
            "a_hit_keeps_its_old_place",
            "a hit is a use",
            "pool",
            (
                "            del self.index.idle[block]\n",
                """            self.places = {*getattr(self, "places", ()), block}
            del self.index.idle[block]
""",
            ),
            (
                "            self.index.idle[block] = None\n",
                """            self.index.idle[block] = None
            if block in getattr(self, "places", ()):
                self.index.idle.move_to_end(block, last=False)
""",
            ),
        ),
        "lru: the longest idle is evicted first",
        11,
        nearest="the cause is not known; there is one order of use here, and the mutant does not renew it at a hit",
    ),
)

HOLDING: Final = (
    Record(
        "B116",
        mutant(
            "last_block_of_a_path_not_locked",
            "a pin holds all of the prefix",
            "prefixes",
            (
                "        for block in hits:\n            self.pool.share",
                "        for block in hits[:-1]:\n            self.pool.share",
            ),
            (".append(hits)\n", ".append(hits[:-1])\n"),
        ),
        _AVAILABLE,
        5,
    ),
    Record(
        "B121",
        mutant(
            "larger_piece_pinned_than_unpinned",
            "a pin holds what unpin lets go",
            "prefixes",
            (
                "        for block in hits:\n            self.pool.share(block)\n",
                """        index, piece = self.pool.index, list(hits)
        while piece and len(after := index.children.get(index.prefix_of[piece[-1]], ())) == 1:
            piece += after  # what continues the match without a branch is one piece with it
        for block in piece:
            self.pool.share(block)
""",
            ),
        ),
        _AVAILABLE,
        5,
        nearest="there are no longer pieces here; the mutant takes unbranched chains for such",
    ),
    Record(
        "B123",
        ILLEGAL["eviction_of_a_pinned_block"],
        "references = table occurrences + pins",
        4,
        nearest="there are no state checkpoints; what eviction does not look at is the pin itself",
    ),
    Record(
        "B125",
        mutant(
            "window_let_go_page_by_page",
            "a position is dead once no query can see it",
            "base",
            (
                "        dead = computed - self",
                """        if self.config.block_size > self.config.sliding_window:
            return computed // self.config.block_size
        dead = computed - self""",
            ),
        ),
        "tables keep their blocks, in order",
        3,
    ),
)

RESETTING: Final = (
    Record(
        "B052",
        ILLEGAL["reset_keeps_used_entries"],
        "entries name what their block holds, once it is computed",
        10,
        nearest="nothing sleeps here; the reset misses the entries of blocks that are in use",
    ),
    Record(
        "B053",
        mutant(
            "reset_refused_while_requests_run",
            "only pins stand in the way of a reset",
            "prefixes",
            ("        if self.pins:\n", "        if self.pins or self.pool.num_used:\n"),
        ),
        "refusal is forbidden when need <= available",
        4,
    ),
)
