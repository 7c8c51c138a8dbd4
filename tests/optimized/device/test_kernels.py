"""The kernels of the device pool, interpreted: they do what the loops do, in any order of their programs."""

import random
from collections import Counter
from typing import Any, cast

import pytest
import torch
from pagedkv.conformance.search.exhaustive import run
from pagedkv.conformance.search.slices import SLICES
from pagedkv.optimized.device import launches
from pagedkv.optimized.device.on_the_cpu import LoopOperations
from pagedkv.optimized.device.outcomes import RowOutcome
from pagedkv.optimized.device.pool import DevicePool
from pagedkv.optimized.device.subject import DeviceSubject
from pagedkv.spec.subject import SubjectFactory

from tests.conformance.test_exhaustive import PINNED
from tests.optimized.device.laws import LAWS, broken_invariant, seen_junk
from tests.optimized.device.pools import InterpretedOperations, Make, OtherPool, carried_out, same
from tests.optimized.device.programs import calls, draw_pool

PROGRAMS = {"state": 60, "pieces": 40, "invariants": 10, "order": 25, "races": 25}
"""Of each law, so many, of ten calls each."""


@pytest.fixture(scope="module")
def seed(request: pytest.FixtureRequest) -> int:
    """It follows the commit, so that every commit tries other programs."""
    return int(request.config.getoption("--hypothesis-seed") or 0)


@pytest.mark.parametrize("law", LAWS)
def test_the_kernels_keep_every_law(law: str, seed: int) -> None:
    """Those of `laws`: kernels == loops after each call, of one chunk and of many; any order of the programs, the same
    bits; no program touches what another one writes."""
    for number in range(PROGRAMS[law]):
        assert LAWS[law](launches, seed + number, 10) is None, f"seed {seed + number}"


@pytest.mark.parametrize("make", [LoopOperations, InterpretedOperations])
def test_what_means_nothing_changes_nothing(make: Make, seed: int) -> None:
    for number in range(150 if make is LoopOperations else 20):
        assert seen_junk(make, seed + number, 10) is None, f"seed {seed + number}"


def test_the_loops_keep_the_invariants(seed: int) -> None:
    for number in range(300):
        assert broken_invariant(LoopOperations, seed + number, 15) is None, f"seed {seed + number}"


METHODS = {"admit", "append", "fork", "free", "truncate", "release_window", "import_", "hand_over"}
"""What answers row by row."""


def test_the_programs_get_everywhere() -> None:
    """What the laws above are about happens: each answer, copies in groups that are refused in part, served rows behind
    refused ones, the last of a group in place, holes, rows without room in their table."""
    met = Counter[Any]()
    for number in range(1200):
        rng = random.Random(number)
        pool = draw_pool(rng)
        for call in calls(rng, pool, 10):
            ends = last_blocks(pool)
            answer = call.on(pool)
            if call.method in METHODS:
                met.update((call.method, RowOutcome(code)) for code in answer[0].tolist())
            if call.method == "append":
                met.update(happened(pool, call.arguments["rows"], ends, answer))
            met["holes"] += int(pool.num_holes.sum() > 0)
    wanted: list[tuple[str, RowOutcome]] = [
        ("admit", code) for code in RowOutcome if code.name not in ("RELEASED", "BAD_TABLE")
    ]
    wanted += [("append", code) for code in RowOutcome if code.name not in ("RELEASED", "BAD_TABLE")]
    wanted += [("truncate", RowOutcome.RELEASED), ("release_window", RowOutcome.BAD_LENGTH)]
    wanted += [("import_", RowOutcome(code)) for code in (0, 1, 2, 3, 4, 7, 9)]
    others = ("fork", "free", "truncate", "release_window", "hand_over")
    wanted += [(method, RowOutcome(code)) for method in others for code in range(4)]
    for what in (*wanted, "holes", "served behind a refused row", "copies, and a refusal", "a group that copies whole"):
        assert met[what] >= 3, (what, met)
    assert met["the last in place"] >= 30
    assert met["the last in place, after a copy"] >= 10


def last_blocks(pool: DevicePool) -> dict[int, int]:
    """Of each row in use whose last block has room: that block."""
    size, lengths = pool.shape.block_size, pool.seq_lens.tolist()
    return {row: int(pool.block_tables[row, n // size]) for row, n in enumerate(lengths) if n % size}


def happened(pool: DevicePool, rows: Any, ends: dict[int, int], answer: Any) -> list[str]:
    """What is special about an append that was made."""
    found, served = [], answer[0].tolist()
    copies = [source for source, _ in answer[3].tolist() if source >= 0]
    asked = list(range(len(served))) if rows is None else rows.tolist()
    if RowOutcome.CAPACITY in served and RowOutcome.OK in served[served.index(RowOutcome.CAPACITY) :]:
        found.append("served behind a refused row")
    if copies and RowOutcome.CAPACITY in served:
        found.append("copies, and a refusal")
    for block in {ends[row] for row in asked if row in ends}:
        group = [i for i, row in enumerate(asked) if ends.get(row) == block and served[i] == RowOutcome.OK]
        in_place = any(answer[3][i, 0] < 0 for i in group)
        if in_place:
            found.append("the last in place" + ", after a copy" * (block in copies))
        elif len(group) > 1:
            found.append("a group that copies whole")
    return found


class InterpretedSubject(DeviceSubject):
    """A pool of interpreted kernels with three rows and little more than the slices need. It is copied as it is: that
    states can be imported is seen where loops do it, in a tenth of the time."""

    def _new_pool(self, num_rows: int, *, leased: bool = False) -> DevicePool:
        config = self.config
        return OtherPool(
            config.num_blocks, config.block_size, 3, 4, sliding_window=config.sliding_window,
            sink_tokens=config.sink_tokens, max_rollback=config.max_rollback, leased=leased,
        )  # fmt: skip

    def _loaded(self) -> DevicePool:
        return self.pool.copy()


def test_every_transition_of_the_core_slice_holds_in_kernels() -> None:
    report = run(cast(SubjectFactory, InterpretedSubject), SLICES["core"])
    assert report.failure is None, report.failure
    assert (report.states, report.transitions, report.refused) == PINNED["core"]


def test_a_copy_of_an_interpreted_pool_goes_its_own_way() -> None:
    pool = OtherPool(4, 2, 2, 3)
    twin = pool.copy()
    pool.admit(torch.tensor([0]), torch.tensor([3]))
    assert not same(pool, twin)
    assert same(pool.copy(), carried_out(pool, LoopOperations))
    assert isinstance(twin._operations, InterpretedOperations)
    assert twin._operations.state is twin._state
