"""The exact probes end, on every shape, and fail no right kernel where formats and codes are short."""

import numpy as np
import pytest

from pagedkv.conformance.attention import Case, Configuration, check_law, run
from pagedkv.conformance.attention.bench import Bench
from pagedkv.conformance.attention.judging import judge
from pagedkv.conformance.attention.probes import CODE, census, codes, one_hot
from pagedkv.optimized.attention.subject import OptimizedAttention
from pagedkv.spec.attention_subject import Problem
from tests.conformance.attention_tiled import TiledAttention

LONG = (816, 1025, 1281)
"""As many positions as "full" has with tiles of 48 to 64."""


@pytest.mark.parametrize(
    ("length", "width"), [(0, 3), (1, 1), (2, 1), (16, 4), (1281, 16), (1281, 11), (600, 61), (600, 63), (600, 256)]
)
def test_codes_are_distinct_however_few_there_are(length: int, width: int) -> None:
    drawn = codes(np.random.default_rng(0), length, (3, width))
    assert drawn.shape == (length, 3, width)
    assert set(np.unique(drawn)) <= {-CODE, CODE}
    for head in range(3):
        assert len(np.unique(drawn[:, head], axis=0)) == length
    assert length < 2 or (drawn[:, 0] != drawn[:, 1]).any()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_long_requests_of_narrow_heads_are_read_to_the_bit(dtype: str) -> None:
    case = Case(dtype=dtype, lengths=LONG, query_lens=(1, 1, 1), num_kv_heads=1, alibi=dtype == "float32")
    assert one_hot(Bench(OptimizedAttention(backend="torch")), case, sweeps=2) == 2 * 3 * case.num_q_heads


@pytest.mark.parametrize(("head_dim", "length", "read"), [(4, 16, True), (4, 17, False), (1, 2, True), (1, 3, False)])
def test_more_positions_than_codes_are_not_applicable(head_dim: int, length: int, read: bool) -> None:
    case = Case(lengths=(length,), head_dim=head_dim)
    judged = judge(Bench(TiledAttention()), "one_hot", case)
    assert judged.detail is None
    assert (judged.checked > 0) == read


def test_heads_of_four_columns_can_be_held() -> None:
    report = run(TiledAttention(), size="tiny", only=[Configuration("bfloat16")], shape={"head_dim": 4})
    assert report.ok, "\n".join(report.lines())


MANY = [
    Case(dtype="bfloat16", lengths=(1153,), query_lens=(8,), num_kv_heads=1, group=1, seed=10),
    Case(dtype="bfloat16", lengths=(193,), num_kv_heads=1, group=1, head_dim=2, seed=7),
    Case(dtype="bfloat16", lengths=(1024,), query_lens=(2,), num_kv_heads=1, group=1, head_dim=1),
    Case(dtype="float16", lengths=(1105,), query_lens=(7,), num_kv_heads=1, group=1, head_dim=2, seed=9),
]
"""More of one class than the format can count."""


class Short(OptimizedAttention):
    """Loses the last position."""

    def attend(self, problem: Problem) -> tuple[object, object]:
        problem.seq_lens[...] -= 1
        answer = super().attend(problem)
        problem.seq_lens[...] += 1
        return answer


@pytest.mark.parametrize("case", MANY, ids=Case.describe)
def test_counts_that_the_format_rounds_fail_no_right_kernel(case: Case) -> None:
    assert census(Bench(OptimizedAttention(backend="torch")), case) > 0


def test_a_lost_position_shows_in_every_format() -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        case = Case(dtype=dtype, lengths=(65,), num_kv_heads=1, group=1)
        assert "counted" in (check_law(Short(backend="torch"), "census", case) or "")
