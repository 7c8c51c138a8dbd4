"""The tuning script without a card: which tilings are refused, which one is chosen, what becomes of the table.

Every time here is made up.
"""

import csv
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pagedkv.optimized.attention import tuned
from pagedkv.optimized.attention.tuned import Tiling, tiling
from pagedkv.optimized.launch import Launch
from tests.benchmarks.gpu import tune as tuning
from tests.benchmarks.gpu.candidates import (
    BATCHES,
    Goal,
    Launched,
    candidates,
    differs,
    does_not_fit,
    goals,
    launches_of,
)
from tests.benchmarks.gpu.checking import small
from tests.benchmarks.gpu.inputs import make
from tests.benchmarks.gpu.session import Deadline
from tests.benchmarks.gpu.tiles_table import COLUMNS, TABLE, rewritten
from tests.benchmarks.gpu.timing import Call, Timing
from tests.benchmarks.gpu.tune import Trial, on_card, row_of, search, tune

CPU = torch.device("cpu")
TINY = {kernel: Goal(kernel, "float32", 16, 2) for kernel in ("decode", "prefill")}
TILINGS = [Tiling(16 * n, 16, 4, 2) for n in range(1, 11)]


def made_up(
    speeds: dict[Tiling, float], unfit: Sequence[Tiling] = (), wrong: Sequence[Tiling] = (), spread: float = 0.0
) -> Trial:
    """A card on which the table's tiling takes a second, and each other one that over its speed."""

    def time(each: Tiling | None, launch: int) -> Timing:
        if each in unfit:
            raise AssertionError("what does not fit was run")
        return Timing(1.0 if each is None else 1.0 / speeds.get(each, 0.5), spread, captured=True)

    def refuse(tilings: Sequence[Tiling]) -> list[str | None]:
        return ["spills" if each in unfit else None for each in tilings]

    return Trial(refuse, time, lambda each: "rho 2" if each in wrong else None, launches=3)


def test_the_fastest_that_fits_and_is_right_is_chosen() -> None:
    speeds = {each: 1 + 0.1 * n for n, each in enumerate(TILINGS)}
    found = search(TILINGS, made_up(speeds, unfit=TILINGS[9:], wrong=TILINGS[8:9]))
    assert found.chosen == TILINGS[7]
    assert found.speed == pytest.approx(speeds[TILINGS[7]])
    assert found.refused == {TILINGS[9]: "spills", TILINGS[8]: "rho 2"}


@pytest.mark.parametrize(("speed", "spread", "better"), [(1.005, 0.0, False), (1.05, 0.06, False), (1.05, 0.02, True)])
def test_the_table_stays_unless_the_gain_stands_out_of_the_noise(speed: float, spread: float, better: bool) -> None:
    found = search(TILINGS, made_up({TILINGS[3]: speed}, spread=spread))
    assert found.chosen == (TILINGS[3] if better else None)


def test_a_tiling_that_does_not_launch_is_refused() -> None:
    trial = made_up({TILINGS[0]: 2.0})

    def time(each: Tiling | None, launch: int) -> Timing:
        if each == TILINGS[1]:
            raise RuntimeError("out of resource: shared memory")
        return trial.time(each, launch)

    found = search(TILINGS, replace(trial, time=time))
    assert found.chosen == TILINGS[0]
    assert found.refused == {TILINGS[1]: "RuntimeError: out of resource: shared memory"}


def test_when_time_is_up_the_goals_left_are_named() -> None:
    looks = iter(range(100))
    told: list[str] = []
    found = tune(goals()[:5], lambda goal: made_up({}), Deadline(2.5, lambda: next(looks)), told.append)
    assert found == []
    assert ["no time" in line for line in told] == [False, False, True, True, True]


@pytest.mark.parametrize("goal", goals(), ids=str)
def test_a_goal_is_tried_on_what_its_row_will_hold_for(goal: Goal) -> None:
    tilings = candidates(goal)
    assert len({*tilings}) == len(tilings)
    assert all(each.rows >= max(16, goal.group) for each in tilings)
    for row in goal.rows():
        shape = row.shape
        key = (goal.kernel, "sm_90", shape.dtype, str(shape.head_dim), str(shape.group))
        assert tuple(goal.key("sm_90").values())[:5] == key
        assert goal.block_size in (None, shape.block_size)
        assert shape.is_decode == (goal.kernel == "decode")


@pytest.mark.parametrize("goal", TINY.values(), ids=str)
def test_a_launch_has_the_tiling_that_it_was_given(goal: Goal) -> None:
    inputs = make(small(goal.rows()[0]), CPU)
    wanted = Tiling(32, 64, 2, 5)
    launches = launches_of(goal, inputs, 0, wanted).launches
    assert [each.name for each in launches] == (["decode", "merge"] if goal.kernel == "decode" else ["prefill"])
    constants = launches[0].kwargs
    assert Tiling(*(constants[name] for name in ("TILE", "ROWS", "num_warps", "num_stages"))) == wanted
    usual = launches_of(goal, inputs, 0, None).launches[0].kwargs
    table = tiling(goal.kernel, "any", goal.dtype, 16, 2, 16)
    assert (usual["TILE"], usual["num_warps"]) == (table.tile, table.num_warps)


@pytest.mark.parametrize("goal", TINY.values(), ids=str)
def test_a_wrong_result_is_refused_and_a_right_one_is_not(goal: Goal) -> None:
    """The kernels, interpreted: with the table's sums, and with one value of the output moved."""
    each = Tiling(64, 16, 4, 2)
    assert differs(goal, each, CPU, Launch.interpret, upcast=True) is None

    def spoilt(launch: Launch) -> None:
        launch.interpret()
        out = next(a for a in launch.args if isinstance(a, torch.Tensor) and a.dim() == 3)  # the query comes first
        target = [a for a in launch.args if isinstance(a, torch.Tensor) and a.shape == out.shape][-1]
        target[0, 0, 0] += 0.01

    assert "rho" in (differs(goal, each, CPU, spoilt, upcast=True) or "")


def test_a_tiling_that_spills_is_refused_without_a_card() -> None:
    goal = goals()[0]
    assert does_not_fit(goal, Tiling(64, 16, 4, 2), "sm_90") is None
    assert "spills" in (does_not_fit(goal, Tiling(128, 16, 1, 2), "sm_90") or "")
    assert does_not_fit(goal, Tiling(128, 16, 1, 2), "a card that the audit does not know") is None


def test_rewriting_changes_the_rows_that_are_tuned_and_no_others() -> None:
    text = TABLE.read_text(encoding="utf-8")
    assert rewritten(text, []) == text
    row = row_of(goals()[0], "sm_90", Tiling(16, 16, 8, 5), "a test")
    once = rewritten(text, [row])
    assert once.startswith(text)
    assert len(once.splitlines()) == len(text.splitlines()) + 1
    assert rewritten(once, [row]) == once
    other = row_of(goals()[0], "sm_90", Tiling(32, 16, 8, 5), "a later test")
    assert rewritten(once, [other]) == rewritten(text, [other])
    for wrong in ({"kernel": "decode"}, {**row, "more": "1"}):
        with pytest.raises(ValueError, match="columns"):
            rewritten(text, [wrong])
    with pytest.raises(ValueError, match="columns"):
        rewritten("kernel,tile\n", [row])


def test_a_tuned_row_decides_for_its_launches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    goal, found = goals()[0], Tiling(16, 16, 8, 5)
    text = rewritten(TABLE.read_text(encoding="utf-8"), [row_of(goal, "sm_90", found, "a test")])
    key = ("decode", "sm_90", "bfloat16", 128, 4)
    others = [("decode", "sm_80", *key[2:]), ("prefill", *key[1:]), (*key[:4], 8)]
    before = [tiling.__wrapped__(*each, 16) for each in others]
    monkeypatch.setattr(tuned, "table", lambda: tuple(csv.DictReader(text.splitlines())))
    assert [tiling.__wrapped__(*key, size) for size in (1, 16, 64)] == [found] * 3
    assert [tiling.__wrapped__(*each, 16) for each in others] == before
    assert tuple(csv.DictReader(text.splitlines()).fieldnames or ()) == COLUMNS


def test_tuning_runs_from_end_to_end_on_interpreted_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three tilings is made up to be the fastest; the third gives wrong results."""
    goal, tilings = TINY["decode"], [Tiling(32, 16, 4, 2), Tiling(16, 16, 4, 1), Tiling(64, 16, 4, 3)]

    def checked(goal: Goal, each: Tiling, device: torch.device) -> str | None:
        return "wrong" if each == tilings[2] else differs(goal, each, device, Launch.interpret, upcast=True)

    def interpret(launched: Launched) -> None:
        for launch in launched.launches:
            launch.interpret()

    monkeypatch.setattr(Launched, "run", interpret)
    monkeypatch.setitem(BATCHES, "decode", (((40, 20), 1), ((33,), 1)))
    monkeypatch.setattr(tuning, "candidates", lambda goal: tilings)
    monkeypatch.setattr(tuning, "differs", checked)

    class ByTile:
        """A made-up second for the table's tiling; fewer tokens a tile are faster. Every call runs."""

        def time(self, calls: Sequence[Call]) -> Timing:
            for call in calls:
                call()
            launch = calls[0].__self__.launches[0]  # type: ignore[attr-defined]  # the method of what was launched
            return Timing(launch.kwargs["TILE"] / 64, 0.0, captured=True)

    table = tmp_path / "tiles.csv"
    table.write_text(TABLE.read_text(encoding="utf-8"), encoding="utf-8")
    told: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        found = tune([goal], lambda each: on_card(each, CPU, ByTile(), pool), Deadline(60.0), told.append)
    tuning.write(table, CPU, found)
    assert found == [(goal, tilings[1])]
    assert "1 refused" in told[0]
    (row,) = [row for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines()) if "tuned" in row["source"]]
    assert (row["architecture"], row["tile"], row["num_stages"]) == ("any", "16", "1")


def test_without_a_card_nothing_is_tuned(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    table = tmp_path / "tiles.csv"
    table.write_text("as it was", encoding="utf-8")
    with pytest.raises(SystemExit):
        tuning.main(["--table", str(table)])
    assert table.read_text(encoding="utf-8") == "as it was"
