"""What strangers' kernels do to a kit: reuse their outputs, write into their inputs, raise, answer in no form."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pagedkv.conformance.attention import Case, Configuration, check_law, planned_checks, run, with_positions
from pagedkv.conformance.attention.bench import INPUTS, Bench
from pagedkv.conformance.attention.held import MAX_SHRINKS
from pagedkv.conformance.attention.judging import Judged, judge
from pagedkv.conformance.attention.plan import configurations
from pagedkv.conformance.attention.relations import RELATIONS
from pagedkv.spec.attention_subject import Problem
from tests.conformance.attention_mutants import MUTANTS
from tests.conformance.attention_tiled import TiledAttention
from tests.conformance.mutants.mutation import Mutant

PLAIN = [Configuration("float32")]
MOVED = Case(lengths=(9, 19, 6), query_lens=(1, 12, 2))


def reusing(kind: Any) -> Any:
    """A subject of this kind that writes all its results of one shape into the same arrays, as a CUDA graph does."""

    class Reusing(kind):  # type: ignore[misc]  # the base is a mutant
        def __init__(self) -> None:
            self.kept: dict[Any, Any] = {}

        def attend(self, problem: Problem) -> tuple[Any, Any]:
            return tuple(self.into(array) for array in super().attend(problem))

        def into(self, array: Any) -> Any:
            same = self.kept.setdefault((array.shape, array.dtype), np.empty_like(array))
            same[...] = array
            return same

    return Reusing()


def test_a_right_kernel_may_reuse_its_output() -> None:
    report = run(reusing(TiledAttention), size="tiny", only=PLAIN)
    assert report.ok, "\n".join(report.lines())


COMPARED = [mutant for mutant in MUTANTS if set(mutant.breaks.split()) & set(RELATIONS)]


@pytest.mark.parametrize("mutant", COMPARED, ids=lambda mutant: mutant.name)
def test_a_relation_compares_results_and_not_an_array_with_itself(mutant: Mutant) -> None:
    subject = reusing(mutant.load())
    laws = set(mutant.breaks.split()) & set(RELATIONS)
    planned = (
        check
        for each in configurations(subject.capabilities, "tiny")
        for check in planned_checks(subject, each, "tiny")
    )
    assert any(check_law(subject, law, case) for law, case in planned if law in laws)


def spoiling(name: str) -> Any:
    """A right kernel that leaves something else in one of its inputs."""

    class Spoiling(TiledAttention):
        def attend(self, problem: Problem) -> tuple[Any, Any]:
            answer = super().attend(problem)
            getattr(problem, name)[...] = 1
            return answer

    return Spoiling()


@pytest.mark.parametrize("law", ["poison", "padding", "bound", "one_hot"])
@pytest.mark.parametrize("name", INPUTS)
def test_a_kernel_that_writes_into_its_inputs_is_told_so(name: str, law: str) -> None:
    case = Case(lengths=(9, 19, 6), query_lens=(1, 12, 2), alibi=True, sinks=True)
    assert check_law(spoiling(name), law, case) == f"attend changed its input {name}"


@pytest.mark.parametrize("law", ["write_path", "history"])
@pytest.mark.parametrize(("index", "name"), [(0, "key"), (1, "value"), (4, "slot_mapping")])
def test_a_write_that_changes_its_rows_or_slots_is_told_so(index: int, name: str, law: str) -> None:
    class Spoiling(TiledAttention):
        def write_kv(self, *arguments: Any) -> None:
            super().write_kv(*arguments)
            arguments[index][...] = -2

    assert check_law(Spoiling(), law, Case()) == f"write_kv changed its input {name}"


def test_a_copy_that_changes_its_pairs_is_told_so() -> None:
    class Spoiling(TiledAttention):
        def copy_blocks(self, caches: Any, pairs: Any, dtype: str) -> None:
            super().copy_blocks(caches, pairs, dtype)
            pairs[...] = -1

    assert check_law(Spoiling(), "copy_blocks", Case()) == "copy_blocks changed its input pairs"


@pytest.mark.parametrize("law", ["write_path", "copy_blocks"])
def test_what_is_written_past_the_end_of_a_row_is_seen_though_only_padding_lies_there(law: str) -> None:
    class Wide(TiledAttention):
        """Writes whole vectors."""

        def write_kv(self, *arguments: Any) -> None:
            super().write_kv(*arguments)
            self.spoil(arguments[3])

        def copy_blocks(self, caches: Any, pairs: Any, dtype: str) -> None:
            super().copy_blocks(caches, pairs, dtype)
            self.spoil(caches[-1])

        def spoil(self, cache: Any) -> None:
            if cache.base is not None:
                cache.base[2, :, :, -1] = 1

    assert "written past the end of a row" in (check_law(Wide(), law, Case()) or "")


def far(raises: Exception) -> Any:
    """A right kernel that raises where blocks lie far apart."""

    class Far(TiledAttention):
        def attend(self, problem: Problem) -> tuple[Any, Any]:
            if problem.key_cache.strides[0] > 2**24:
                raise raises
            return super().attend(problem)

    return Far()


def torch_raises(name: str) -> Exception:
    torch = pytest.importorskip("torch")
    error: Exception = getattr(torch, name)("CUDA out of memory")
    return error


@pytest.mark.parametrize(
    "raises",
    [
        MemoryError,
        lambda: torch_raises("OutOfMemoryError"),
        lambda: RuntimeError("[enforce fail at alloc_cpu.cpp:120] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_no_room_for_far_blocks_breaks_no_law(raises: Callable[[], Exception]) -> None:
    assert judge(Bench(far(raises())), "far_blocks", MOVED) == Judged(0)


@pytest.mark.parametrize("there", [True, False], ids=["torch", "no_torch"])
def test_an_illegal_access_to_far_blocks_breaks_the_law(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not there:
        monkeypatch.delitem(sys.modules, "torch", raising=False)
    fault = RuntimeError("CUDA error: an illegal memory access was encountered")
    assert "illegal memory access" in (check_law(far(fault), "far_blocks", MOVED) or "")
    assert judge(Bench(far(MemoryError())), "far_blocks", MOVED).checked == 0
    assert there or "torch" not in sys.modules


class Counting(TiledAttention):
    """Counts its launches."""

    launches = 0

    def attend(self, problem: Problem) -> Any:
        type(self).launches += 1
        return self.answer(problem)

    def answer(self, problem: Problem) -> Any:
        return super().attend(problem)


def raising(problem: Problem) -> Any:
    raise IndexError("no kernel for this card")


def single(problem: Problem) -> Any:
    return TiledAttention().attend(problem)[0]


def double(problem: Problem) -> Any:
    out, lse = TiledAttention().attend(problem)
    return out.astype(np.float64), lse


def no_lse(problem: Problem) -> Any:
    return TiledAttention().attend(problem)[0], None


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (raising, "raised IndexError: no kernel for this card (test_attention_judging.py:"),
        (lambda problem: None, "attend must return (output, lse or None), got NoneType"),
        (single, "attend must return (output, lse or None), got an array float32 (1, 1, 16)"),
        (double, "output must be an array float32 (1, 1, 16), got an array float64 (1, 1, 16)"),
        (no_lse, "lse must be an array float32 (1, 1), for returns_lse is declared; got NoneType"),
    ],
)
def test_who_does_not_answer_is_told_so_once_and_soon(answer: Callable[[Problem], Any], text: str) -> None:
    class Speechless(Counting):
        launches = 0

    Speechless.answer = staticmethod(answer)  # type: ignore[method-assign,assignment]  # by what is tried
    report = run(Speechless(), size="tiny")
    assert {(failure.law, failure.kind) for failure in report.failures} == {("answer", "launch")}
    assert len(report.failures) == len(report.configurations)
    assert report.failures[0].detail.startswith(text)
    assert report.failures[0].case == "Case(lengths=(1,), num_kv_heads=1, group=1)"
    assert len([line for line in report.lines() if line.startswith("VIOLATED")]) == 1
    assert "0.00" not in "".join(report.lines()), "no rho of what was not bounded"
    assert Speechless.launches <= 2 * len(report.configurations) + MAX_SHRINKS


def test_an_answer_that_is_malformed_for_some_cases_only_hides_no_other_law() -> None:
    class Narrow(TiledAttention):
        """Gives 64 columns at the most, and logarithms to base 2."""

        def attend(self, problem: Problem) -> tuple[Any, Any]:
            out, lse = super().attend(problem)
            return out[..., :64], lse * np.float32(np.log2(np.e))

    failures = {failure.law: failure for failure in run(Narrow(), size="tiny", only=PLAIN).failures}
    assert set(failures) == {"answer", "lse_bound"}
    assert "got an array float32 (1, 1, 64)" in failures["answer"].detail
    assert check_law(Narrow(), "answer", eval(failures["answer"].case, {"Case": Case})) == failures["answer"].detail


def test_what_was_raised_is_kept_with_where_and_nothing_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wraps(TiledAttention):
        def attend(self, problem: Problem) -> tuple[Any, Any]:
            np.concatenate([np.zeros((2, 1)), np.moveaxis(np.zeros(3), 0, 1)])  # raises inside of NumPy
            return super().attend(problem)

    monkeypatch.setenv("PAGEDKV_DEBUG", "1")
    (failure,) = run(Wraps(), size="tiny", only=PLAIN).failures
    assert isinstance(failure.error, np.exceptions.AxisError)
    assert failure.error.__traceback__ is not None
    assert "(test_attention_judging.py:" in failure.detail
    assert " in attend)" in failure.detail
    assert "error" not in failure.as_json()
    assert capsys.readouterr() == ("", "")


def test_a_failure_with_more_rows_than_positions_names_the_way_out() -> None:
    class OwnRows(TiledAttention):
        def attend(self, problem: Problem) -> tuple[Any, Any]:
            if (problem.query_lens > problem.seq_lens).any():
                raise ValueError("more rows than positions")
            return super().attend(problem)

    class Fitting(OwnRows):
        def fit(self, case: Case) -> Case | None:
            return with_positions(case)

    causal = [Configuration("float32")]
    report = run(OwnRows(), size="tiny", only=causal)
    assert report.failures
    assert all("says so by `fit`, see `with_positions`" in failure.detail for failure in report.failures)
    assert run(Fitting(), size="tiny", only=causal).ok
    assert "with_positions" not in (check_law(spoiling("query"), "bound", MOVED) or "")
