"""A short soak holds, and one of a manager with a fault does not."""

import pytest
from pagedkv.optimized import BlockManager
from pagedkv.optimized.state import ManagerState
from pagedkv.spec import Ok, Reason, Refused

from tests.optimized.soak import main, soak
from tests.optimized.soak_life import WEIGHTS


def test_twenty_thousand_operations_hold() -> None:
    report = soak(20_000, seed=1)
    assert not report.violation, report
    assert report.operations >= 20_000
    kinds = {name.rpartition(" ")[0] for name in report.counts}
    assert kinds == set(WEIGHTS), "every kind was run"
    assert report.counts["admit ok"] > 500
    assert report.counts["misuse ok"] > 100


def test_the_same_seed_runs_the_same_operations() -> None:
    assert soak(2_000, seed=3).counts == soak(2_000, seed=3).counts != soak(2_000, seed=4).counts


def test_what_free_forgets_is_missed_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code says so, and what is printed repeats it."""
    monkeypatch.setattr(BlockManager, "free", lambda manager, request: Ok())
    assert main(["--operations", "600", "--seed", "5"]) == 1
    seen = capsys.readouterr()
    assert "drain: every block is available" in seen.out
    again = seen.out.rpartition("empty pool: ")[2].split()
    assert main(again) == 1
    assert "operations" in seen.err
    monkeypatch.undo()
    assert main(again) == 0


def test_a_refusal_without_cause_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ManagerState, "refusal", lambda *sizes, **more: Refused(Reason.CAPACITY))
    assert "need > available" in soak(2_000, seed=6).violation
