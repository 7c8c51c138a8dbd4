"""How the adapters of attention work, on subjects of our own and on torch, which is always there."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from pagedkv.conformance.adapters.attention import holding, interpreted
from pagedkv.conformance.adapters.attention.flex import Flex
from pagedkv.conformance.adapters.attention.sdpa import PaddedSdpa, Sdpa
from pagedkv.conformance.attention import Case, Configuration, check_law, with_positions
from pagedkv.conformance.attention.plan import Check
from pagedkv.optimized.audit.interpret import Interpreted
from pagedkv.reference.attention import ReferenceAttention
from pagedkv.spec.attention_subject import Problem
from pagedkv.spec.words import Misuse

WINDOWED = Case(lengths=(9, 19, 6), query_lens=(1, 12, 2), window=3)


class OneTooMany(ReferenceAttention):
    """Its window is one position too wide, and it takes decodes only."""

    package = "numpy"

    def fit(self, case: Case) -> Case | None:
        return with_positions(case) if set(case.query_lens) == {1} else None

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        window = problem.window and problem.window + 1
        return super().attend(replace(problem, window=window))


def test_a_subject_is_held_to_what_it_is_made_for_and_each_broken_law_is_small_and_judged() -> None:
    verdict = holding.Verdict(("bound", "one_hot"), ("window",), "bug", "one too many", "here")
    held = holding.hold(OneTooMany(), only=[Configuration("float32", ("window",))])
    assert held.left_out > 0
    assert "poison" in held.kept
    assert {"bound", "lse_bound"} <= {violation.law for violation in held.violations}
    for violation in held.violations:
        assert violation.case.query_lens == (1,)
        assert check_law(OneTooMany(), violation.law, violation.case) is not None
    data = holding.record(
        OneTooMany(), held, [verdict], factory="tests:OneTooMany", command="x", date="y", not_run=""
    )  # fmt: skip
    verdicts = {broken["law"]: broken["verdict"] for broken in data["broken"]}
    assert verdicts["bound"] == "bug"
    assert verdicts["lse_bound"] == "not judged"
    assert data["broken"][0]["inputs"]["command"].startswith("pagedkv attention --subject tests:OneTooMany --law ")


def test_the_shapes_of_an_adapter_are_kept_where_a_case_gets_smaller() -> None:
    class Shaped(OneTooMany):
        shapes = ({"num_kv_heads": 3, "group": 2}, {"num_kv_heads": 2, "group": 3})

    violations = holding.hold(Shaped(), only=[Configuration("float32", ("window",))]).violations
    assert {(each.case.num_kv_heads, each.case.group) for each in violations} <= {(3, 2), (2, 3)}
    assert {each.case.lengths for each in violations} != set()


def test_requests_with_more_rows_than_positions_are_left_out() -> None:
    assert with_positions(Case(lengths=(5, 2), query_lens=(1, 3))) == Case(lengths=(5,), query_lens=(1,))
    assert with_positions(Case(lengths=(2,), query_lens=(3,))) is None
    assert with_positions(Case(lengths=(2,), query_lens=(0,))) is None


@pytest.mark.parametrize("subject", [Sdpa(), Sdpa("MATH"), Flex()], ids=lambda each: each.name)
def test_torch_over_gathered_pages_breaks_one_law_only(subject: Any) -> None:
    checks = [Check(law, WINDOWED) for law in ("bound", "poison", "dead_blocks")]
    assert [check_law(subject, law, case) for law, case in checks] == [None] * len(checks)
    assert "nan" in (check_law(subject, "unseen", WINDOWED) or "")


def test_padding_a_batch_lets_what_unused_slots_hold_through() -> None:
    assert check_law(PaddedSdpa(), "bound", WINDOWED) is None
    assert "unused slots filled with nan" in (check_law(PaddedSdpa(), "poison", WINDOWED) or "")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package that cannot be imported here, with a file of kernels that imports it."""
    folder = tmp_path / "strange_kernels"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise ImportError('needs a GPU')\n")
    (folder / "names.py").write_text("import triton.language as tl\n")
    (folder / "ops.py").write_text(
        "import triton\nfrom strange_kernels.platform import wanted\nfrom strange_kernels.names import tl\n"
        "@triton.jit\ndef twice(x, n: tl.constexpr):\n    at = tl.arange(0, n)\n"
        "    tl.store(x + at, tl.load(x + at) * 2)\n"
        "def host(x):\n    twice[(1,)](x, n=wanted())\n    return x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "strange_kernels"
    sys.modules.pop("strange_kernels", None)


FILES = {"strange_kernels.names": "names.py", "strange_kernels.ops": "ops.py"}
STAND_INS = {"strange_kernels.platform": {"wanted": lambda: 4}}


def test_kernels_of_a_package_run_without_it_and_leave_no_modules_behind(package: str) -> None:
    before = set(sys.modules)
    ops = interpreted.loaded(package, FILES, STAND_INS, Interpreted, ["twice"])[-1]
    assert ops.host(torch.arange(4.0)).tolist() == [0, 2, 4, 6]
    assert {name for name in set(sys.modules) - before if name.startswith("strange")} == set()


def test_a_package_that_is_missing_or_of_another_version_is_named(package: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="this subject needs no_such: pip install --no-deps no_such"):
        interpreted.loaded("no_such", FILES, STAND_INS, Interpreted)
    with pytest.raises(ImportError, match=r"strange_kernels has no gone\.py"):
        interpreted.loaded(package, {"strange_kernels.gone": "gone.py"}, STAND_INS, Interpreted)


def test_modules_that_were_there_before_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ModuleType("strange")
    monkeypatch.setitem(sys.modules, "strange", real)
    with interpreted.standing_in({"strange.part": {"value": 1}}):
        assert sys.modules["strange.part"].value == 1
    assert sys.modules["strange"] is real
    assert "strange.part" not in sys.modules
    assert not hasattr(real, "part")


def test_triton_that_compiles_already_cannot_interpret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
    with pytest.raises(Misuse, match="TRITON_INTERPRET"):
        interpreted.interpreting()
