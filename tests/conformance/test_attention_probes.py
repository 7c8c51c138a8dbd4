"""The exact probes end, on every shape, and fail no right kernel where formats and codes are short."""

import numpy as np
import pytest

from pagedkv.conformance.attention import Case, Configuration, check_law, run
from pagedkv.conformance.attention.bench import Bench
from pagedkv.conformance.attention.judging import judge
from pagedkv.conformance.attention.probes import CODE, census, codes, one_hot
from pagedkv.optimized.attention.subject import OptimizedAttention
from pagedkv.spec.attention_subject import Problem, RoundingModel
from tests.conformance.attention_tiled import TILE, TiledAttention

LONG = (816, 1025, 1281)
"""As many positions as "full" has with tiles of 48 to 64."""


@pytest.mark.parametrize(
    ("length", "width"), [(0, 3), (1, 1), (2, 1), (16, 4), (1281, 16), (1281, 11), (600, 61), (600, 63), (600, 256)]
)
def test_codes_are_distinct_however_few_there_are(length: int, width: int) -> None:
    drawn, distance = codes(np.random.default_rng(0), length, (3, width))
    assert drawn.shape == (length, 3, width)
    assert set(np.unique(drawn)) <= {-CODE, CODE}
    for head in range(3):
        assert len(np.unique(drawn[:, head], axis=0)) == length
        differ = (drawn[:100, None, head] != drawn[None, :, head]).sum(axis=-1)
        assert 1 <= distance <= min(differ[differ > 0], default=width)
    assert length < 2 or width < 3 or (drawn[:, 0] != drawn[:, 1]).any()


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


class Masked(Short):
    """All that is wrong lies under a mask, where comparisons of NumPy see nothing."""

    def attend(self, problem: Problem) -> tuple[object, object]:
        out, lse = super().attend(problem)
        return np.ma.masked_array(out, mask=True), lse


@pytest.mark.parametrize("law", ["bound", "census", "one_hot"])
def test_a_mask_hides_nothing(law: str) -> None:
    assert check_law(Masked(backend="torch"), law, Case(lengths=(65,), num_kv_heads=1, group=1)) is not None


class Divided(TiledAttention):
    """Divides by the sum so far in every tile, as FlashAttention-1 does: sums of no power of two on the way to one."""

    def attend(self, problem: Problem) -> tuple[object, object]:
        out, total = np.float32(0), np.float32(0)
        positions = np.arange(int(problem.seq_lens[0]))
        slots = problem.block_tables[0][positions // problem.key_cache.shape[1]], positions % problem.key_cache.shape[1]
        values, seen = problem.value_cache[slots][:, 0], positions[-int(problem.window or 0) :]
        for first in range(0, len(positions), TILE):
            tile = seen[(seen >= first) & (seen < first + TILE)]
            if len(tile):
                more = total + np.float32(len(tile))
                out, total = (out * total + values[tile].sum(axis=0)) * (np.float32(1) / more), more
        return np.asarray(out, np.float32)[None, None], np.zeros((1, 1), np.float32)


@pytest.mark.parametrize("length", [67, 131, 70])
def test_counts_of_a_kernel_that_divides_on_its_way_are_right(length: int) -> None:
    """A count of 3.99999976 for 4, among a power of two, is rounding."""
    case = Case(lengths=(length,), num_kv_heads=1, group=1, window=64)
    assert census(Bench(Divided()), case) == 3


def test_a_lost_position_shows_in_every_format() -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        case = Case(dtype=dtype, lengths=(65,), num_kv_heads=1, group=1)
        assert "counted" in (check_law(Short(backend="torch"), "census", case) or "")


def test_few_launches_reach_all_over_a_long_request() -> None:
    """Its ends, and of its cuts not only those at the beginning."""
    asked: list[int] = []

    class Asked(TiledAttention):
        def attend(self, problem: Problem) -> tuple[object, object]:
            keys = problem.key_cache[problem.block_tables[0, :64]].reshape(1024, 64)
            asked.extend((problem.query[0] @ keys.T).argmax(axis=1).tolist())
            return super().attend(problem)

    case = Case(lengths=(1024,), num_kv_heads=1, block_size=16, head_dim=64, split_size=256)
    assert one_hot(Bench(Asked()), case) == 8
    assert {0, 1023} <= set(asked)
    assert len({position // 256 for position in asked}) == 4
    assert all(position % 256 in (0, 255) for position in asked)


class Fused(TiledAttention):
    """A decode of one request as FlashAttention-2 has it: exp2(c s - round(c max)) in one rounding, and weights in the
    format of the values, while the sum is of what they were."""

    def rounding(self, problem: Problem) -> RoundingModel:
        return RoundingModel(tile=max(1, int(problem.seq_lens.max())), num_tiles=1, u_weights=2.0**-11)

    def attend(self, problem: Problem) -> tuple[object, object]:
        places = np.divmod(np.arange(int(problem.seq_lens[0])), problem.key_cache.shape[1])
        slots = problem.block_tables[0, places[0]], places[1], 0
        keys, values = (cache[slots].astype(np.float32) for cache in (problem.key_cache, problem.value_cache))
        scores = problem.query[0].astype(np.float32) @ keys.T
        to_log2 = np.float32(problem.scale * np.log2(np.e))
        largest = scores.max(axis=1, keepdims=True) * to_log2
        weights = np.exp2((scores.astype(np.float64) * to_log2 - largest).astype(np.float32))
        out = (weights.astype(np.float16).astype(np.float32) @ values) / weights.sum(axis=1, keepdims=True)
        return out.astype(np.float16)[None], np.zeros((1, len(out)), np.float32)


@pytest.mark.parametrize("length", [2048, 2049, 65_541])
@pytest.mark.parametrize("head_dim", [32, 96, 192, 256])
def test_logits_stay_small_enough_for_weights_of_16_bits(length: int, head_dim: int) -> None:
    """The farther codes are apart, the smaller is the scale: else the largest weight is not 1, and no value comes back
    to the bit."""
    case = Case(dtype="float16", lengths=(length,), num_kv_heads=1, block_size=16, head_dim=head_dim)
    assert one_hot(Bench(Fused()), case) == 8
