"""How a failure of an attention kernel is told, on the smallest case of its shape; what is misuse and no failure."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from pagedkv.conformance.attention import Case, Configuration, Failure, check_law, planned_checks, run
from pagedkv.conformance.attention.cases import case_of
from pagedkv.conformance.attention.held import held, smallest
from pagedkv.conformance.attention.shapes import DEEPEST, MOST_REQUESTS
from pagedkv.conformance.attention.smaller import smaller
from pagedkv.spec.attention_subject import AttentionCapabilities, Problem, RoundingModel
from pagedkv.spec.words import Misuse
from tests.conformance.attention_mutants import MUTANTS
from tests.conformance.attention_tiled import TiledAttention

PLAIN = [Configuration("float32")]


def test_a_smaller_case_keeps_the_shape_that_is_fixed() -> None:
    broken = next(mutant for mutant in MUTANTS if mutant.name == "mask_on_k_only").load()
    shape = {"num_kv_heads": 3, "group": 2, "value_dim": 32}
    fixed = run(broken(), size="tiny", only=PLAIN, shape=shape).failures
    free = run(broken(), size="tiny", only=PLAIN).failures
    for failure in fixed:
        case = eval(failure.case, {"Case": Case})
        assert {name: getattr(case, name) for name in shape} == shape
        assert len(case.lengths) == 1
    assert "group=1" in free[0].case


def test_the_shapes_of_a_subject_are_taken_in_turns_unless_one_is_fixed() -> None:
    class Shaped(TiledAttention):
        shapes = ({"block_size": 16, "num_kv_heads": 3, "head_dim": 16}, {"block_size": 5, "head_dim": 24})

        def attend(self, problem: Problem) -> tuple[Any, Any]:
            raise IndexError("nothing")

    planned = [case for _, case in planned_checks(Shaped(), PLAIN[0], "tiny")]
    assert {case.num_kv_heads for case in planned[::2]} == {3}
    assert {(case.block_size, case.head_dim) for case in planned[1::2]} == {(5, 24)}
    (failure,) = run(Shaped(), size="tiny", only=PLAIN).failures
    assert "block_size=16, lengths=(1,), num_kv_heads=3" in failure.case
    given = planned_checks(Shaped(), PLAIN[0], "tiny", shape={"block_size": 7})
    assert {case.block_size for _, case in given} == {7}


@pytest.mark.parametrize("case", [Case(lengths=(9, 4, 5), query_lens=(3, 4, 0)), Case(lengths=(4,), query_lens=(2,))])
def test_no_smaller_case_has_more_rows_than_positions(case: Case) -> None:
    seen, todo = {case}, [case]
    while todo:
        new = set(smaller(todo.pop())) - seen
        assert all(rows <= length for each in new for length, rows in zip(each.lengths, each.query_lens, strict=True))
        seen |= new
        todo += new
    assert any(sum(each.query_lens) == 1 == sum(each.lengths) for each in seen)
    assert len(case.lengths) < 3 or any(len(each.lengths) == 2 for each in seen)


@pytest.mark.parametrize(
    ("wrong", "small"),
    [
        (lambda lengths, rows: max(lengths) > 2**16, lambda lengths: lengths == (2**16 + 1,)),
        (lambda lengths, rows: max(lengths) > 40_000, lambda lengths: len(lengths) == 1 and lengths[0] < 41_000),
        (lambda lengths, rows: max(lengths) > 4, lambda lengths: lengths == (5,)),
        (lambda lengths, rows: len(lengths) > 40, lambda lengths: 40 < len(lengths) < 60),
        (lambda lengths, rows: len(lengths) > 1024, lambda lengths: len(lengths) == MOST_REQUESTS),
        (lambda lengths, rows: 5 in rows, lambda lengths: lengths == (3,)),
    ],
    ids=["past 16 bits", "long", "short after all", "many", "as many as there are", "one of many"],
)
def test_a_large_case_gets_small_within_the_attempts(
    wrong: Callable[..., bool], small: Callable[[tuple[int, ...]], bool]
) -> None:
    class Wrong(TiledAttention):
        def attend(self, problem: Problem) -> Any:
            if wrong(problem.seq_lens.tolist(), problem.query_lens.tolist()):
                raise IndexError
            rows = np.zeros((*problem.query.shape[:2], problem.value_cache.shape[3]), np.float32)
            return rows, rows[..., 0]

    deep = replace(Case(head_dim=32, num_kv_heads=1), lengths=(DEEPEST, 4099), query_lens=(1, 20))
    crowd = replace(Case(), lengths=(7, 3) * (MOST_REQUESTS // 2), query_lens=(1, 5) * (MOST_REQUESTS // 2))
    case = next(each for each in (deep, crowd) if check_law(Wrong(), "duplicate_run", each))
    found, _ = smallest(Wrong(), "duplicate_run", case, held(Wrong()).judge("duplicate_run", case))
    assert small(found.lengths), found.describe()
    assert len(found.describe()) < 300
    assert case_of(found.describe()) == found


def test_laws_that_say_the_same_are_told_together_and_what_was_never_tried_one_by_one() -> None:
    same = [Failure("bound", "bound", "Case()", "raised"), Failure("one_hot", "probe", "Case()", "raised")]
    never = [Failure("exercised", "capability", "", f"{name} was never exercised") for name in ("window", "sinks")]
    failures = (*same, *same[:1], *never)
    report = replace(run(TiledAttention(), size="tiny", only=PLAIN), failures=failures)
    assert report.lines()[3:-1] == [
        "VIOLATED bound (bound), one_hot (probe): raised",
        "  Case()",
        "  and in 1 more configuration",
        "VIOLATED exercised (capability): window was never exercised",
        "VIOLATED exercised (capability): sinks was never exercised",
    ]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: AttentionCapabilities(dtypes=("fp8",)), "expected a tuple of some of float32, float16, bfloat16"),
        (lambda: AttentionCapabilities(dtypes="float32"), "dtypes='float32'"),  # type: ignore[arg-type]  # as some do
        (lambda: AttentionCapabilities(dtypes=()), r"dtypes=\(\)"),
        (lambda: AttentionCapabilities(window=cast(Any, 3)), "window=3 is not allowed: expected True or False"),
        (lambda: Case(dtype="fp8"), "dtype='fp8' is not allowed: expected one of float32, float16, bfloat16"),
        (lambda: Case(style="loud"), "style='loud'"),
        (lambda: Case(lengths=(3, 4)), r"query_lens=\(1,\) is not allowed: expected as many numbers as lengths=\(3, 4"),
        (lambda: Case(lengths=()), r"lengths=\(\)"),
        (lambda: Case(lengths=(-1,)), "lengths=-1 is not allowed: expected an integer >= 0"),
        (lambda: Case(block_size=0), "block_size=0"),
        (lambda: Case(window=0), "window=0"),
        (lambda: run(TiledAttention(), only=PLAIN, shape={"head_dim": 0}), "head_dim=0"),
        (lambda: run(Fits(), only=PLAIN), r"fit\(Case\(lengths=.* is not allowed: expected a Case, or None"),
        (lambda: run(Rounds(), only=PLAIN), "rounding=None is not allowed: expected a RoundingModel"),
        (lambda: run(RoundsLater(), only=PLAIN), "rounding=None is not allowed: expected a RoundingModel"),
        (lambda: run(RoundsNothing(), only=PLAIN), "tile and num_tiles of 1 or more where there are positions"),
        (lambda: RoundingModel(tile=10**30, num_tiles=1), r"tile=10+ is not allowed: expected an integer from 0 to 2"),
        (lambda: run(Shapes(), only=PLAIN), "shapes=5 is not allowed: expected a sequence of mappings"),
        (lambda: run(Exits(), only=PLAIN), r"=SystemExit\(1\) is not allowed: expected a Case, or None, and no"),
    ],
)
def test_what_no_law_is_for_is_misuse_and_not_a_violation(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(Misuse, match=text):
        make()


class Fits(TiledAttention):
    def fit(self, case: Case) -> Any:
        return True


class Rounds(TiledAttention):
    def rounding(self, problem: Problem) -> Any:
        return None


class RoundsLater(TiledAttention):
    """Does not say how it rounds where a request is long, which is seen in the middle of a law."""

    def rounding(self, problem: Problem) -> Any:
        return None if max(problem.seq_lens) > 20 else super().rounding(problem)


class RoundsNothing(TiledAttention):
    def rounding(self, problem: Problem) -> Any:
        return RoundingModel(tile=0, num_tiles=0)


class Shapes(TiledAttention):
    shapes = 5


class Exits(TiledAttention):
    def fit(self, case: Case) -> Any:
        raise SystemExit(1)
