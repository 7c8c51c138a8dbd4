"""The lane that times attention on a GPU, without one: counts, order, time, the page. Every figure here is made up."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

from pagedkv.optimized.attention import gather_kv
from tests.benchmarks.gpu import __main__ as lane
from tests.benchmarks.gpu.checking import Checker, small
from tests.benchmarks.gpu.contenders import Attend, Contender
from tests.benchmarks.gpu.contenders.ours import PAGED, Ours
from tests.benchmarks.gpu.grid import BATCHES, CONTEXTS, GROUPS, PAGES, Row, decode, mixed, prefill, rows, smoke
from tests.benchmarks.gpu.inputs import MOST_COPIES, Inputs, copies_for, make
from tests.benchmarks.gpu.page import render
from tests.benchmarks.gpu.results import faults, page_ratios, plain, wanted
from tests.benchmarks.gpu.session import NO_MEMORY, NO_TIME, Deadline, Job, Outcome, Session, jobs
from tests.benchmarks.gpu.shapes import ITEM_BYTES, Shape
from tests.benchmarks.gpu.timing import Call, Timing

CPU = torch.device("cpu")


class MadeUp:
    """A timer that times nothing: every call runs once, and takes a made-up second."""

    def time(self, calls: Sequence[Call]) -> Timing:
        for call in calls:
            call()
        return Timing(1.0, 0.01, captured=True)


def ticking(step: float) -> Callable[[], float]:
    """A clock that moves on by `step` seconds at each look."""
    looks: Iterator[int] = iter(range(10**9))
    return lambda: step * next(looks)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    counts = tuple(draw(st.integers(1, length)) for length in lengths)
    heads, group, dim, size = (draw(st.integers(1, 3)) for _ in range(4))
    dtype = draw(st.sampled_from([*ITEM_BYTES]))
    return Shape(tuple(lengths), counts, heads, group, dim, size, dtype)


@given(shapes())
def test_operations_and_bytes_are_those_that_are_counted_one_by_one(shape: Shape) -> None:
    operations, touched = 0, set()
    for request, (n, m) in enumerate(zip(shape.lengths, shape.rows, strict=True)):
        for row, head, dim in product(range(m), range(shape.num_q_heads), range(shape.head_dim)):
            touched |= {(name, request, row, head, dim) for name in ("query", "out")}
            operations += sum(4 for position in range(n) if position <= n - m + row)
        for position, head, dim in product(range(n), range(shape.num_kv_heads), range(shape.head_dim)):
            touched |= {(name, request, position, head, dim) for name in ("key", "value")}
    assert shape.flops == operations
    assert shape.least_bytes == len(touched) * ITEM_BYTES[shape.dtype]


@given(shapes(), st.integers(1, 3))
def test_copies_are_equal_launches_on_blocks_of_their_own(shape: Shape, copies: int) -> None:
    inputs = make(shape, CPU, copies)
    assert inputs.k_cache.nbytes + inputs.v_cache.nbytes == copies * shape.cache_bytes
    used = [table[r, : -(-n // shape.block_size)] for table in inputs.tables for r, n in enumerate(shape.lengths)]
    assert sorted(torch.cat(used).tolist()) == list(range(copies * shape.num_blocks))
    for copy, table in enumerate(inputs.tables):
        for side, cache in zip(inputs.contiguous(copy), (inputs.k_cache, inputs.v_cache), strict=True):
            ends = torch.tensor([0, *shape.lengths], dtype=torch.int32).cumsum(0).to(torch.int32)
            assert torch.equal(side, gather_kv(cache, table, ends, total=sum(shape.lengths)))
    problem = inputs.problem()
    assert (tuple(problem.seq_lens), tuple(problem.query_lens)) == (shape.lengths, shape.rows)


@given(shapes(), st.integers(0, 10**4), st.integers(0, 10**5))
def test_copies_outgrow_the_cache_unless_memory_or_reason_forbids(shape: Shape, cache: int, free: int) -> None:
    copies = copies_for(shape, cache, free)
    assert 1 <= copies <= MOST_COPIES
    enough = copies * shape.cache_bytes >= 4 * cache
    assert enough or copies == MOST_COPIES or (copies + 1) * shape.cache_bytes * 2 > free
    assert copies == 1 or copies * shape.cache_bytes <= free


def test_the_grid_has_all_that_is_asked_for_once_the_important_first() -> None:
    every = rows()
    assert len({(row.kind, row.shape) for row in every}) == len(every)
    assert [row.tier for row in every] == sorted(row.tier for row in every)
    have = {row.shape for row in every}
    for batch, context, group, size in product(BATCHES, CONTEXTS, GROUPS, PAGES):
        assert decode(batch, context, 0, group=group, block_size=size).shape in have
    assert {row.kind for row in every if row.tier == 0} == {"decode", "prefill", "chunked", "mixed"}
    timed = [plain(Outcome(row, PAGED, Timing(1.0, 0.0, captured=True)), 1.0) for row in every if row.tier == 0]
    assert all(line.rows for line in wanted(timed))


@pytest.mark.parametrize("row", [*smoke(), *rows()[:40]], ids=lambda row: row.label[:60])
def test_what_is_checked_is_small_and_of_the_same_kind(row: Row) -> None:
    shape, whole = small(row), row.shape
    assert sum(shape.lengths) <= 1400
    assert all(m <= n for n, m in zip(shape.lengths, shape.rows, strict=True))
    kept = ("group", "head_dim", "block_size", "dtype", "is_decode")
    assert [getattr(shape, name) for name in kept] == [getattr(whole, name) for name in kept]
    assert (shape.lengths == shape.rows) == (whole.lengths == whole.rows)
    assert len({*shape.rows}) == len({*whole.rows})


class Scaled(Ours):
    """Ours, with another scale: what a contender that computes something else looks like."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "scaled"

    def prepare(self, inputs: Inputs) -> Sequence[Attend]:
        return super().prepare(replace(inputs, query=inputs.query * 1.5))


@pytest.mark.parametrize("row", smoke(), ids=lambda row: row.kind)
def test_only_who_computes_attention_is_timed(row: Row) -> None:
    checker = Checker(CPU)
    assert checker.objection(Ours(), row) is None
    assert "rho" in (checker.objection(Scaled(), row) or "")


class Failing:
    """Available, and unable."""

    name, until_tier = "failing", 0

    def __init__(self, error: Exception) -> None:
        self.error = error

    def available(self, device: torch.device) -> str | None:
        return None

    def prepare(self, inputs: Inputs) -> Sequence[Attend]:
        if max(inputs.shape.lengths) == 1024:  # the check has passed
            raise self.error
        return Ours().prepare(inputs)


def test_jobs_go_tier_by_tier_ours_first() -> None:
    tiers = [decode(1, 16, tier) for tier in (0, 1, 0)]
    other: Contender = Failing(ValueError())
    order = [(job.row.tier, job.contender.name) for job in jobs(tiers, [Ours(), other])]
    assert order == [(0, PAGED), (0, PAGED), (0, "failing"), (0, "failing"), (1, PAGED)]


def test_when_time_is_up_the_rest_is_named_and_left() -> None:
    planned = jobs(smoke(), [Ours()])
    told: list[str] = []
    session = Session(CPU, MadeUp(), Deadline(3.5, ticking(1.0)), told.append)
    outcomes = list(session.run(planned))
    assert [job.row for job in planned] == [outcome.row for outcome in outcomes]
    timed = [outcome.timing is not None for outcome in outcomes]
    assert timed == sorted(timed, reverse=True)
    assert 0 < sum(timed) < len(timed)
    assert {outcome.why for outcome in outcomes if outcome.timing is None} == {NO_TIME}
    assert len(told) == sum(timed)


@pytest.mark.parametrize(
    ("error", "why"),
    [(ValueError("no such page\nsize"), "ValueError: no such page"), (torch.OutOfMemoryError(), NO_MEMORY)],
)
def test_what_a_contender_raises_costs_its_line_only(error: Exception, why: str) -> None:
    row = decode(2, 1024, 0)
    session = Session(CPU, MadeUp(), Deadline(60.0))
    outcomes = list(session.run([Job(row, Failing(error)), Job(smoke()[0], Ours())]))
    assert [(outcome.why, outcome.timing is not None) for outcome in outcomes] == [(why, False), ("", True)]


def test_what_does_not_fit_is_not_tried() -> None:
    outcome = next(iter(Session(CPU, MadeUp(), Deadline(60.0)).run([Job(decode(256, 2**20, 0), Ours())])))
    assert (outcome.why, outcome.timing) == (NO_MEMORY, None)


def made_up(of_bandwidth: float, tflops: float, slower: float) -> list[dict[str, object]]:
    """Results that nobody measured."""
    every = [
        *(decode(32, 4096, 0, block_size=size) for size in (1, 16, 64)),
        decode(1, 131072, 0),
        prefill(4, 16384, 0),
    ]
    found = []
    for row in [*every, mixed(8, 4096, 0)]:
        seconds = row.shape.least_bytes / 1e12 / of_bandwidth * (slower if row.shape.block_size == 1 else 1.0)
        if row.kind == "prefill":
            seconds = row.shape.flops / 1e12 / tflops
        found.append(plain(Outcome(row, PAGED, Timing(seconds, 0.01, captured=True)), 1e12))
    other = Outcome(every[0], "another", Timing(1e-9, 0.0, captured=False))
    return [*found, plain(other, 1e12), plain(Outcome(every[1], "absent", None, "no module | here"), 1e12)]


@pytest.mark.parametrize(
    ("of_bandwidth", "tflops", "slower", "verdicts"),
    [
        (0.90, 450.0, 1.04, [True, True, True, True]),
        (0.70, 450.0, 1.00, [False, True, True, True]),
        (0.99, 390.0, 1.30, [False, True, False, False]),
        (0.50, 400.0, 1.15, [False, False, True, True]),
    ],
)
def test_what_is_wanted_is_judged_by_the_worst_row_of_ours(
    of_bandwidth: float, tflops: float, slower: float, verdicts: list[bool]
) -> None:
    found = made_up(of_bandwidth, tflops, slower)
    assert [line.met for line in wanted(found)] == verdicts
    assert [line.rows for line in wanted(found)] == [3, 1, 1, 1]
    assert [line.met for line in wanted([])] == [None] * 4
    assert page_ratios(row for row in found if row["contender"] == PAGED) == [pytest.approx(slower)]


def test_a_row_of_ours_that_failed_is_a_fault_and_one_left_out_is_none() -> None:
    row = smoke()[0]
    reasons = (NO_TIME, NO_MEMORY, "ValueError: odd")
    found = [plain(Outcome(row, PAGED, None, why), 1.0) for why in reasons]
    found.append(plain(Outcome(row, "another", None, "ValueError: odd"), 1.0))
    assert faults(found) == [f"{row.label}: ValueError: odd"]


def test_the_page_has_every_row_and_every_reason() -> None:
    found = made_up(0.9, 450.0, 1.04)
    about = {"card": "Made-up card", "date": "2000-01-01"}
    text = render({"machine": about, "command": "nothing ran", "copy_bandwidth": 1e12, "rows": found})
    assert text.count(" pagedkv |") == sum(row["contender"] == PAGED for row in found)
    assert "no module / here" in text
    assert text.count("(eager)") == 1
    assert "Made-up card" in text


def test_the_lane_runs_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lane.main(["--device", "cpu", "--out", str(tmp_path)], MadeUp()) == 0
    (numbers,) = tmp_path.glob("*.json")
    result = json.loads(numbers.read_text(encoding="utf-8"))
    assert numbers.with_suffix(".md").read_text(encoding="utf-8") == render(result)
    timed = [row["row"] for row in result["rows"] if row["contender"] == PAGED and "seconds" in row]
    assert timed == [row.label for row in smoke()]
    assert "measured nothing" in capsys.readouterr().out


def test_a_page_is_not_replaced_by_one_without_figures(tmp_path: Path) -> None:
    assert lane.main(["--device", "cpu", "--seconds", "-1", "--out", str(tmp_path)], MadeUp()) == 1
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("given", [["--device", "cpu"], *([] if torch.cuda.is_available() else [[]])])
def test_no_page_is_written_among_the_documents_without_a_card(given: list[str]) -> None:
    with pytest.raises(SystemExit):
        lane.main(given, MadeUp())


def test_committed_pages_show_the_numbers_beside_them() -> None:
    results = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in lane.DOCUMENTS.glob("*.json")]
    cards = [(path, result) for path, result in results if "copy_bandwidth" in result]
    for path, result in cards:
        assert path.with_suffix(".md").read_text(encoding="utf-8") == render(result)
    explained = (lane.DOCUMENTS / "gpu.md").read_text(encoding="utf-8")
    assert ("No card has been\nmeasured yet." in explained) == (not cards)
