"""What the attention kit asks of a subject: every cut of a kernel, every kind of request, every odd dimension."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pagedkv.conformance.attention import Case, Configuration, planned_checks, with_positions
from pagedkv.conformance.attention.cases import FEW, SHAPES, STYLES, contents
from pagedkv.conformance.attention.placement import place
from pagedkv.conformance.attention.plan import OPTIONS, Check, Size, checks, configurations
from pagedkv.conformance.attention.shapes import DEEPEST, DIMS, MOST_ELEMENTS
from pagedkv.spec.attention import logits
from pagedkv.spec.attention_subject import AttentionCapabilities
from tests.conformance.attention_tiled import TiledAttention

STEP = 16
"""What "tiny" takes for a tile; a split has two."""
SIZES: tuple[Size, Size] = ("tiny", "full")
EVERYTHING = TiledAttention.capabilities


def plan(size: Size, capabilities: AttentionCapabilities = EVERYTHING, dtype: str | None = None) -> list[Check]:
    """All checks of a subject with tiles of `STEP`."""
    chosen = (each for each in configurations(capabilities, size) if dtype in (None, each.dtype))
    return [check for each in chosen for check in checks(each, capabilities, size, STEP, 0)]


PLANS = {size: plan(size) for size in SIZES}


def cases(size: Size, *laws: str) -> list[Case]:
    """The cases of some laws."""
    return [case for law, case in PLANS[size] if law in laws]


def requests(of: list[Case]) -> Iterator[tuple[Case, int, int]]:
    """(case, length, query rows) of each request."""
    for case in of:
        for length, rows in zip(case.lengths, case.query_lens, strict=True):
            yield case, length, rows


@pytest.mark.parametrize("size", SIZES)
def test_every_dimension_has_its_turn(size: Size) -> None:
    seen = cases(size, "bound")
    assert {(c.block_size, c.num_kv_heads, c.group, *c.dims) for c in seen} >= {
        (d.block_size, d.num_kv_heads, d.group, d.head_dim, d.value_dim or d.head_dim) for d in DIMS
    }
    assert {dims.head_dim for dims in DIMS} >= {16, 32, 64, 80, 96, 112, 128, 256}
    assert {dims.group for dims in DIMS} >= {1, 3, 4, 5, 7, 8}
    assert {dims.block_size for dims in DIMS} >= {1, 3, 16, 64, 256}
    assert {0 if d.value_dim is None else 1 if d.value_dim > d.head_dim else -1 for d in DIMS} == {-1, 0, 1}


@pytest.mark.parametrize("dtype", EVERYTHING.dtypes)
def test_every_dtype_meets_every_dimension(dtype: str) -> None:
    seen = {(c.block_size, c.head_dim) for law, c in plan("full", dtype=dtype) if law == "bound"}
    assert seen >= {(dims.block_size, dims.head_dim) for dims in DIMS}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", SHAPES)
def test_requests_end_before_at_and_past_every_cut(size: Size, shape: str) -> None:
    found = [(c, n) for c, n, rows in requests(cases(size, "bound")) if rows and c.shapes() and shape in _shape(rows)]
    assert max(n for _, n in found) > 2 * STEP, "several splits"
    if shape == "decode":
        assert {0, 1, STEP - 1, STEP, STEP + 1, 2 * STEP - 1, 2 * STEP, 2 * STEP + 1} <= {n for _, n in found}
        assert {-1, 0, 1} <= {n - c.block_size for c, n in found}


def _shape(rows: int) -> list[str]:
    return Case(lengths=(rows,), query_lens=(rows,)).shapes()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("law", ["bound", "census", "one_hot"])
def test_rows_of_a_request_lie_on_both_sides_of_a_cut(size: Size, law: str) -> None:
    found = list(requests(cases(size, law)))
    assert any(1 < rows <= FEW and n - rows < 2 * STEP < n and c.split_size == 2 * STEP for c, n, rows in found)
    assert any(rows > 16 and rows < n for _, n, rows in found), "a chunk of several blocks of rows"
    assert any(rows > n > 0 for _, n, rows in found), "more rows than positions"
    assert any(n == 0 and rows for _, n, rows in found), "rows and no position"
    assert any(n and not rows for _, n, rows in found), "no rows"


@pytest.mark.parametrize("size", SIZES)
def test_a_decode_stands_beside_a_prompt_where_company_must_not_matter(size: Size) -> None:
    batches = [set(case.shapes()) for case in cases(size, "batch_invariance")]
    assert set(SHAPES) in batches


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("causal", [True, False])
def test_windows_are_narrower_than_a_tile_as_wide_and_wider(size: Size, causal: bool) -> None:
    found = [c for c in cases(size, "bound") if c.window is not None and c.causal == causal]
    several = [c for c in found if set(c.shapes()) != {"decode"}]
    assert {(c.window > STEP) - (c.window < STEP) for c in found if c.window} >= {-1, 1}
    narrow = requests([case for case in several if case.window == 3])
    assert any(rows > FEW and (n - rows) // STEP < (n - 1) // STEP for _, n, rows in narrow), "rows see different tiles"
    if size == "full" or causal:
        assert any(c.window == STEP for c in several)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("law", ["bound", "one_hot", "census", "dead_blocks"])
def test_a_row_that_sees_only_itself_has_its_turn_alone_and_beside_a_prompt(size: Size, law: str) -> None:
    batches = [set(case.shapes()) for case in cases(size, law) if case.window == 1]
    assert {"decode"} in batches
    assert set(SHAPES) in batches


@pytest.mark.parametrize("size", SIZES)
def test_what_lies_around_is_poisoned_where_rows_and_windows_meet(size: Size) -> None:
    for law in ("poison", "unseen", "table_tail", "strides", "far_blocks", "dead_blocks"):
        assert any(c.window is not None and set(c.shapes()) == set(SHAPES) for c in cases(size, law)), law


@pytest.mark.parametrize("size", SIZES)
def test_every_style_is_bounded_and_rising_logits_meet_a_window(size: Size) -> None:
    assert {case.style for case in cases(size, "bound")} == set(STYLES)
    assert any(case.window is not None and case.style == "late" for case in cases(size, "bound"))
    assert all(case.softcap for case in cases(size, "bound") if case.style == "saturated")


def test_late_logits_rise_far_below_zero_to_under_minus_100() -> None:
    case = Case(lengths=(40,), style="late", head_dim=64, group=1)
    inside = contents(case)
    s = logits(inside.queries[0][0], inside.keys[0], 39, range(40), inside.scale, 0.0, None)
    assert (s[:, 1:] > s[:, :-1]).all()
    assert s.min() < -1e4
    assert s.max() < -100


@pytest.mark.parametrize("size", SIZES)
def test_a_subject_is_asked_for_nothing_that_it_does_not_declare(size: Size) -> None:
    least = AttentionCapabilities(dtypes=("float32",))
    assert {case.features() for _, case in plan(size, least)} == {()}
    decodes = replace(EVERYTHING, causal_prefill=False, value_dim=False)
    seen = {name for _, case in plan(size, decodes) for name in case.features()}
    assert seen == set(OPTIONS)


def test_values_have_their_own_width() -> None:
    launch = place(case := Case(head_dim=16, value_dim=24, group=3), contents(case))
    assert (launch.key_cache.shape[3], launch.value_cache.shape[3]) == (16, 24)
    assert case.features() == ("value_dim",)
    assert Case(head_dim=16, value_dim=16).features() == ()


@pytest.mark.parametrize("law", ["one_hot", "census"])
def test_a_compiled_kernel_meets_more_positions_than_16_bits_count(law: str) -> None:
    deep = [case for case in cases("full", law) if max(case.lengths) > 2**16]
    assert {case.window is None for case in deep} == {True, False}
    assert {(case.split_size, max(case.query_lens)) for case in deep} == {(None, 20)}
    decodes = plan("full", replace(EVERYTHING, causal_prefill=False))
    assert any(max(c.lengths) > 2**16 and max(c.query_lens) == 1 for name, c in decodes if name == law)


def test_a_compiled_kernel_meets_more_blocks_than_16_bits_count_and_options_over_long_requests() -> None:
    deep = [case for case in cases("full", "census") if max(case.lengths) > 2**16]
    assert any(sum(case.lengths) // case.block_size > 2**16 for case in deep)
    assert {name for case in deep for name in case.features()} >= set(OPTIONS)


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("shape", [{}, {"block_size": 16, "num_kv_heads": 8, "head_dim": 128}])
def test_a_compiled_kernel_meets_lengths_around_powers_of_two(shape: dict[str, int], several: bool) -> None:
    class Subject(TiledAttention):
        capabilities = replace(EVERYTHING, causal_prefill=several)

    planned = planned_checks(Subject(), Configuration("float32"), "full", shape=shape)
    for law in ("census", "one_hot"):
        found = {(n, rows) for _, n, rows in requests([c for name, c in planned if name == law])}
        for power in (128, 256, 512, 1024, 2048, 4096):
            assert {(power - 1, 1), (power, 1), (power + 1, 1)} <= found
            assert not several or power == 4096 or (power + 3, 3) in found, "the first row of a chunk lies at it"
        assert not several or max(rows for _, rows in found) == 300


SHAPES_OF_MODELS: tuple[dict[str, int], ...] = (
    {},
    {"block_size": 16, "num_kv_heads": 8, "group": 4, "head_dim": 128},
    {"block_size": 64, "head_dim": 64},
)


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("shape", SHAPES_OF_MODELS)
def test_a_compiled_kernel_meets_more_requests_than_a_scheduler_has_threads(
    shape: dict[str, int], several: bool
) -> None:
    class Subject(TiledAttention):
        capabilities = replace(EVERYTHING, causal_prefill=several)

    planned = planned_checks(Subject(), Configuration("float32"), "full", shape=shape)
    for wanted in ("bound", "one_hot", "census"):
        (batch,) = (case for law, case in planned if law == wanted and len(case.lengths) > 1024)
        found = [(length, rows) for _, length, rows in requests([batch])]
        usual = with_positions(batch)
        assert usual is not None
        assert len(usual.lengths) > 1024
        assert {length for length, _ in found} == set(range(2 * batch.block_size + 2))
        assert {rows for _, rows in found} == ({0, 1, 2, 3, 4, 5} if several else {1})
        assert not several or any(rows > length > 0 for length, rows in found)


@pytest.mark.parametrize("shape", [{"block_size": 16, "num_kv_heads": 4, "head_dim": 128}, {"head_dim": 256}])
def test_the_long_request_keeps_its_length_in_the_shapes_of_models(shape: dict[str, int]) -> None:
    planned = planned_checks(TiledAttention(), Configuration("float32"), "full", shape=shape)
    assert max(max(case.lengths) for _, case in planned) == DEEPEST


@pytest.mark.parametrize("shape", [{"num_kv_heads": 32, "head_dim": 128}, {"block_size": 256, "num_kv_heads": 32}])
def test_many_heads_fit_into_memory_all_the_same(shape: dict[str, int]) -> None:
    planned = planned_checks(TiledAttention(), Configuration("float32"), "full", shape=shape)
    for _, case in planned:
        slots = case.block_size * sum(-(-length // case.block_size) for length in case.lengths)
        assert slots * case.num_kv_heads * max(case.dims) <= 1.3 * MOST_ELEMENTS
    assert max(max(case.lengths) for _, case in planned) > 4096
    assert max(len(case.lengths) for _, case in planned) > 32


def test_lengths_lie_around_the_blocks_of_a_fixed_shape() -> None:
    for _, case in planned_checks(TiledAttention(), Configuration("float32"), "full", shape={"block_size": 48}):
        assert case.block_size == 48
    decodes = [
        c
        for law, c in planned_checks(TiledAttention(), Configuration("float32"), "full", shape={"block_size": 48})
        if law == "bound" and set(c.shapes()) == {"decode"}
    ]
    assert {47, 48, 49} <= {length for case in decodes for length in case.lengths}


def test_an_interpreted_run_stays_small() -> None:
    """An interpreted program takes a millisecond: a launch has few requests, rows and heads."""
    for case in {case for _, case in PLANS["tiny"]}:
        assert len(case.lengths) <= 7
        assert sum(case.query_lens) <= 48
        assert sum(case.lengths) <= 600
        assert case.num_q_heads <= 8
