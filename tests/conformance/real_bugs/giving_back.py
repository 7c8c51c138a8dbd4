"""Bugs of the ledger: how often a block is given back, and who owns it meanwhile."""

from typing import Final

from tests.conformance.illegal import ILLEGAL
from tests.conformance.illegal_tool import mutant
from tests.conformance.real_bugs.records import CRASH, Record

_AVAILABLE: Final = "counts add up"

GIVING_BACK: Final = (
    Record(
        "B001",
        mutant(
            "freed_once_for_each_row",
            "a block comes back once, with its last owner",
            "manager",
            (
                "        run = _RUN[kinds.pop()]\n",
                """        if kinds == {Free}:
            tables = [self.requests.pop(row.request).table for row in rows]
            given = [block for table in tables for block in reversed(table)]
            for block in given:
                self.pool.references[block] -= 1
            unowned = [block for block in given if self.pool.references[block] == 0]  # a shared one several times
            self.pool.free += unowned
            self.pool.num_used -= len(unowned)
            return [Ok() for _ in rows]
        run = _RUN[kinds.pop()]
""",
            ),
        ),
        _AVAILABLE,
        5,
    ),
    Record(
        "B006",
        mutant(
            "lookahead_freed_by_two",
            "a block is released once for each reference",
            "residency",
            (
                "        self._release_table(entry)\n        self.free_swap",
                """        for block in entry.table[ceil_div(entry.length, self.config.block_size) :]:
            self.pool.release(block)  # the slot of the step that will not come; the table has it, too
        self._release_table(entry)
        self.free_swap""",
            ),
        ),
        _AVAILABLE,
        6,
    ),
    Record(
        "B013",
        mutant(
            "index_counts_as_an_owner",
            "a block is used while a table or a pin refers to it",
            "pool",
            ("self.num_used -= 1", "self.num_used -= block not in self.index  # which refers to it, too"),
        ),
        _AVAILABLE,
        4,
    ),
    Record(
        "B015",
        mutant(
            "lookup_keeps_what_it_reads",
            "lookup is pure",
            "prefixes",
            (
                'hits = self.pool.index.match(namespace, token_path("tokens", tokens))\n',
                """hits = self.pool.index.match(namespace, token_path("tokens", tokens))
        for block in hits:  # held while it is read
            self.pool.share(block)
""",
            ),
        ),
        _AVAILABLE,
        5,
        nearest="there is no copy out of the cache here; what reads it is `lookup`",
    ),
    Record(
        "B017",
        mutant(
            "released_early_and_again",
            "a block is released once for each reference",
            "manager",
            (
                "    def begin_step(",
                """    early: dict[Any, list[Block]] = {}

    def commit(self, request: Any, computed: Any) -> Any:
        before = self.requests[request].table.copy()
        outcome = super().commit(request, computed)
        gone = [block for block in before if block not in self.requests[request].table]
        self.early = {**self.early, request: self.early.get(request, []) + gone}
        return outcome

    def free(self, request: Any) -> Any:
        for block in self.early.pop(request, []):  # the list that was begun with, not what is left of it
            self.pool.release(block)
        return super().free(request)

    def begin_step(""",
            ),
        ),
        _AVAILABLE,
        5,
        nearest="what is released early is what a sliding window lets go; the end of the request does it again",
    ),
    Record(
        "B018",
        ILLEGAL["length_off_by_one"],
        "table length is ceil(reserved / block_size)",
        6,
        nearest="no bug there; the mutant is the correction that was proposed and is wrong",
    ),
    Record(
        "B117",
        mutant(
            "rewritten_block_cached_twice",
            "a write into an indexed block drops its entry",
            "pool",
            (
                "self.num_blocks - self.num_used - len(self.held)",
                "len(self.free) + sum(not self.references[block] for block in self.index.block_of.values())",
            ),
            (
                "        if block in self.index:\n            self.index.remove",
                ("        if block in self.index and not self.references[block]:\n            self.index.remove"),
            ),
        ),
        "entries name what their block holds, once it is computed",
        10,
        nearest="the rewritten block is one of a request that was truncated",
    ),
    Record(
        "B217",
        mutant(
            "freed_once_for_each_owner",
            "a shared block is available with its last owner",
            "pool",
            (
                "        if self.references[block] > 0:\n            return\n        self.num_used -= 1\n",
                "        self.num_used -= 1\n        if self.references[block] > 0:\n            return\n",
            ),
        ),
        _AVAILABLE,
        6,
    ),
    Record(
        "B218",
        mutant(
            "free_needs_a_table",
            "a preempted request can be freed",
            "residency",
            (
                "        self._release_table(entry)\n        self.free_swap",
                """        assert entry.table, "a sequence without a block table"
        self._release_table(entry)
        self.free_swap""",
            ),
        ),
        CRASH,
        10,
        nearest="the cause is not confirmed; here whoever has no table, because it waits, cannot be freed",
    ),
)
