"""Bugs of tables: whose block stands where, forks and copy-on-write, swap and relabelling."""

from typing import Final

from tests.conformance.illegal import ILLEGAL
from tests.conformance.illegal_tool import mutant
from tests.conformance.real_bugs.records import CRASH, Record

_LENGTH: Final = "table length is ceil(reserved / block_size)"
_TABLES: Final = "tables keep their blocks, in order"

ROWS: Final = (
    Record(
        "B011",
        mutant(
            "leading_part_of_the_row_forgotten",
            "slot = table[position // block_size] * block_size + offset",
            "base",
            ("self.table[p // block_size] *", "self.table[p // block_size - self.holes] *"),
        ),
        "slots are where the table puts the positions",
        4,
        nearest="there is no encoder; a row begins with other entries where a sliding window has left holes",
    ),
    Record(
        "B031",
        mutant(
            "rows_without_a_hit_left_empty",
            "each row of a table names its own blocks",
            "manager",
            (
                "            tables[request] = tuple(entry.table)\n",
                """            with_hits = {bool(other.prefixes) for _, other in entries}
            tables[request] = tuple(entry.table) if entry.prefixes or len(with_hits) == 1 else (0,) * len(entry.table)
""",
            ),
        ),
        "only an available block is handed out",
        6,
    ),
    Record(
        "B152",
        mutant(
            "tail_of_the_row_before",
            "a table ends with what is reserved",
            "residency",
            (
                "        self._release_table(entry)\n        self.free_swap",
                """        self.row = entry.table.copy()  # the next request gets the same row
        self._release_table(entry)
        self.free_swap""",
            ),
            (
                "self._with_holes(live + fresh, holes), holes",
                'self._with_holes(live + fresh, holes) + getattr(self, "row", [])[ceil_div(reserved, size) :], holes',
            ),
        ),
        _LENGTH,
        5,
    ),
)

SHARING: Final = (
    Record(
        "B183",
        mutant(
            "suffix_of_the_blocks_handed_over",
            "a child has the blocks of its text, in their places",
            "growth",
            (
                "del twin.table[ceil_div(twin.length, self.config.block_size) :]",
                "del twin.table[: len(twin.table) - ceil_div(twin.length, self.config.block_size)]",
            ),
        ),
        _TABLES,
        5,
        nearest="the blocks go to another engine there, to a forked child here",
    ),
    Record(
        "B213",
        mutant(
            "copy_of_the_name_only",
            "a writer into a shared block gets another block",
            "growth",
            ("            entry.table[i] = copy.destination\n", ""),
        ),
        "only an available block is handed out",
        5,
    ),
    Record("B214", ILLEGAL["skipped_copy_on_write"], "only an available block is handed out", 5),
    Record(
        "B219",
        mutant(
            "history_missing_after_widening",
            "a child has all blocks of its parent",
            "growth",
            (
                "        self.requests[child] = twin\n",
                """        twin.table = [block for block in twin.table if block not in self.pool.index]
        self.requests[child] = twin
""",
            ),
        ),
        _LENGTH,
        4,
    ),
    Record(
        "B221",
        mutant(
            "whole_group_expected_to_wait",
            "a forked request is a request of its own",
            "manager",
            (
                "    def begin_step(",
                """    group: tuple[Any, ...] = ()

    def fork(self, parent: Any, child: Any) -> Any:
        self.group = (*(self.group or (parent,)), child)
        return super().fork(parent, child)

    def resume(self, request: Any) -> Any:
        waiting = [one for one in self.group if one in self.requests and self.requests[one].residency != "resident"]
        assert len(waiting) == len(self.group), "a waiting group whose samples do not all wait"
        return super().resume(request)

    def begin_step(""",
            ),
        ),
        CRASH,
        9,
    ),
)

MOVING: Final = (
    Record(
        "B040",
        mutant(
            "swapped_in_from_the_front_of_the_queue",
            "what was saved comes back byte for byte",
            "residency",
            (
                "        fresh = [self.pool.take() for _ in entry.saved]\n",
                """        fresh, homes = [], []
        for home in entry.saved:
            homes.append(home if self.pool.free else self.free_swap[0])  # where cached state would be moved to
            fresh.append(self.pool.take())
""",
            ),
            ("map(Copy, entry.saved, fresh)", "map(Copy, homes, fresh)"),
        ),
        "swap saves and restores every block once",
        8,
        nearest="an evicted block is not moved to swap space here; the wrong saved block is read in the same situation",
    ),
    Record(
        "B045",
        mutant(
            "nothing_saved_behind_a_hole",
            "every block of a table is saved, holes left out",
            "residency",
            (
                "live, holes = [block for block in entry.table if block != HOLE]",
                "live, holes = [] if entry.holes else entry.table[:]",
            ),
        ),
        _LENGTH,
        7,
        nearest="swap space takes whole requests, no cached blocks; what is missing before is a hole of the window",
    ),
    Record(
        "B195",
        mutant(
            "moves_applied_one_after_another",
            "a relabelling is one step",
            "manager",
            (
                "            entry.table = [HOLE if block == HOLE else labels[block] for block in entry.table]\n",
                """            for old, new in enumerate(labels):
                entry.table = [new if block == old else block for block in entry.table]
""",
            ),
        ),
        _TABLES,
        10,
        nearest="the cause is not known; defragmentation is `permute` here",
    ),
    Record(
        "B201",
        mutant(
            "second_move_overwrites_the_first",
            "two relabellings are their composition",
            "manager",
            (
                """        for pins in self.pins.values():
            pins[:] = [[labels[block] for block in blocks] for blocks in pins]
""",
                "        self.move = labels  # of what is pinned, once it is needed\n",
            ),
            (
                "    def begin_step(",
                """    move: list[int] | None = None

    def unpin(self, tokens: Any, namespace: Any = "") -> Any:
        for pins in self.pins.values():
            pins[:] = [[self.move[block] if self.move else block for block in blocks] for blocks in pins]
        return super().unpin(tokens, namespace)

    def begin_step(""",
            ),
        ),
        "references = table occurrences + pins",
        10,
        nearest="positions are not shifted here; blocks are relabelled, and the pins follow when they are next used",
    ),
)
