"""The attention kit itself: it passes a right kernel, and catches every mutant by a law that names the break."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from pagedkv.conformance.attention import Case, Configuration, check_law, planned_checks, run, runner
from pagedkv.conformance.attention.cases import STYLES, contents
from pagedkv.conformance.attention.cases import cast as round_to
from pagedkv.conformance.attention.placement import FILLS, Placement, place
from pagedkv.conformance.attention.plan import LAWS, NEEDS, Check, Size, checks, configurations
from pagedkv.reference.attention import ReferenceAttention
from pagedkv.spec.arrays import stored
from pagedkv.spec.attention_subject import AttentionCapabilities, Problem, RoundingModel
from pagedkv.spec.masks import row_positions, seen
from pagedkv.spec.words import Misuse
from tests.conformance.attention_kernel_mutants import KERNEL_MUTANTS
from tests.conformance.attention_mutants import LARGE_MUTANTS, MUTANTS, TILED
from tests.conformance.attention_tiled import TiledAttention
from tests.conformance.mutants.mutation import Mutant

SIZES: tuple[Size, Size] = ("tiny", "full")


def test_a_right_kernel_passes() -> None:
    report = run(TiledAttention(), seed=0, size="tiny")
    assert report.ok, "\n".join(report.lines())
    assert set(report.laws) == set(LAWS) - {"split_invariance"}
    assert report.undeclared == ("split_invariant",)


def test_a_right_kernel_passes_on_larger_shapes() -> None:
    some = [Configuration("float32", ("window",)), Configuration("bfloat16", ("sinks",))]
    report = run(TiledAttention(), seed=0, size="full", only=some)
    assert report.ok, "\n".join(report.lines())
    assert [(each.dtype, each.features) for each in report.configurations] == [(c.dtype, c.features) for c in some]


def test_a_shape_can_be_fixed() -> None:
    shape = {"block_size": 16, "head_dim": 32}
    planned = planned_checks(TiledAttention(), Configuration("float32"), "full", shape=shape)
    assert {(check.case.block_size, check.case.head_dim) for check in planned} == {(16, 32)}
    assert run(TiledAttention(), size="tiny", only=[Configuration("float32")], shape=shape).ok


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_seed_fails_a_right_kernel(seed: int) -> None:
    report = run(TiledAttention(), seed=seed, size="tiny")
    assert report.ok, "\n".join(report.lines())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_caught_by_a_law_that_names_it(mutant: Mutant) -> None:
    subject, laws = mutant.load()(), mutant.breaks.split()
    planned = (
        check
        for each in configurations(subject.capabilities, "tiny")
        for check in planned_checks(subject, each, "tiny")
    )
    assert any(check_law(subject, law, case) for law, case in planned if law in laws), f"{mutant.name} survives {laws}"


@pytest.mark.parametrize("mutant", LARGE_MUTANTS, ids=lambda mutant: mutant.name)
def test_what_only_large_launches_show_they_show(mutant: Mutant) -> None:
    subject, laws = mutant.load()(), mutant.breaks.split()
    features = ("sinks",) if mutant.name.startswith("sink_") else ()
    planned = {size: planned_checks(subject, Configuration("float32", features), size) for size in SIZES}
    tiny, full = ([(law, case) for law, case in planned[size] if law in laws] for size in SIZES)
    assert not any(check_law(subject, law, case) for law, case in tiny)
    assert any(check_law(subject, law, case) for law, case in full if sum(case.lengths) > 850)


ROUNDED = ("(weights[:, None] @ values)", "(round_to(weights, problem.dtype).astype(np.float32)[:, None] @ values)")
"""Weights in the dtype of the values, as tensor cores want them."""
DECLARED = ("lse_merge=merges)", "lse_merge=merges, u_weights=2.0 ** -{'float16': 11, 'bfloat16': 8}[problem.dtype])")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_may_be_rounded_if_that_is_declared(dtype: str) -> None:
    only = [each for each in configurations(TiledAttention.capabilities, "tiny") if each.dtype == dtype]
    declared, silent = (
        Mutant("rounded_weights", "bound", TILED, replacements, attribute="TiledAttention").load()()
        for replacements in ((ROUNDED, DECLARED), (ROUNDED,))
    )
    report = run(declared, seed=0, size="tiny", only=only)
    assert report.ok, "\n".join(report.lines())
    assert {failure.law for failure in run(silent, seed=0, size="tiny", only=only, shrink=False).failures} == {"bound"}


def test_every_law_is_the_one_that_names_some_mutant() -> None:
    named = {law for mutant in (*MUTANTS, *KERNEL_MUTANTS) for law in mutant.breaks.split()}
    assert named == set(LAWS)


def test_a_failing_report_is_json_too() -> None:
    (mutant,) = (mutant for mutant in MUTANTS if mutant.name == "empty_row_divides_by_zero")
    report = run(mutant.load()(), seed=0, size="tiny", only=[Configuration("float32")], shrink=False)
    told = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert told["ok"] is False
    assert "inf" in told["configurations"][0]["rhos"].values()


def test_a_failure_is_shrunk_and_reproducible() -> None:
    (mutant,) = (mutant for mutant in MUTANTS if mutant.name == "wrong_kv_head")
    subject = mutant.load()()
    first = run(subject, seed=0, size="tiny", stop_at_first=True).failures[0]
    case = eval(first.case, {"Case": Case})
    assert check_law(subject, first.law, case) == first.detail
    assert case.lengths == (1,)
    assert case.num_kv_heads == 2, "one head cannot be the wrong one"
    assert check_law(TiledAttention(), first.law, case) is None


def test_the_report_is_json_and_deterministic() -> None:
    only = [Configuration("float32"), Configuration("bfloat16", ("window", "sinks"))]
    first, second = (run(TiledAttention(), seed=5, size="tiny", only=only) for _ in range(2))
    assert json.loads(json.dumps(first.as_json()))["ok"] is True
    assert replace(first, elapsed_s=0.0) == replace(second, elapsed_s=0.0)


def test_undeclared_capabilities_make_no_check_and_are_listed() -> None:
    class Least(TiledAttention):
        capabilities = AttentionCapabilities()

    report = run(Least(), seed=0, size="tiny")
    assert report.ok, "\n".join(report.lines())
    assert len(report.configurations) == 1
    assert set(report.undeclared) == {
        "causal_prefill", "non_causal", "window", "softcap", "alibi", "sinks", "value_dim", "returns_lse", "writes",
        "strided", "padded", "batch_invariant", "split_invariant",
    }  # fmt: skip


def test_a_declared_capability_that_saw_nothing_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_strides(*given: Any) -> list[Check]:
        return [check for check in checks(*given) if NEEDS.get(check.law) != "strided"]

    monkeypatch.setattr(runner, "checks", without_strides)
    report = run(TiledAttention(), seed=0, size="tiny")
    assert [(failure.kind, failure.detail) for failure in report.failures] == [
        ("capability", "strided is declared and was never exercised")
    ]


def test_what_a_subject_raises_breaks_the_law_at_hand() -> None:
    class Raises(TiledAttention):
        def attend(self, problem: object) -> tuple[object, object]:
            raise IndexError("out of the table")

    told = check_law(Raises(), "poison", Case()) or ""
    assert re.fullmatch(r"raised IndexError: out of the table \(test_attention_kit\.py:\d+ in attend\)", told)


def test_misuse_names_the_argument() -> None:
    with pytest.raises(Misuse, match="size='huge'"):
        run(TiledAttention(), size=cast(Size, "huge"))
    with pytest.raises(Misuse, match=r"shape=.'lengths': 3"):
        run(TiledAttention(), shape={"lengths": 3})
    with pytest.raises(Misuse, match="law='gravity'"):
        check_law(TiledAttention(), "gravity", Case())


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_contents_are_finite_in_every_style(style: str, dtype: str) -> None:
    inside = contents(Case(dtype=dtype, lengths=(7, 0), query_lens=(1, 1), style=style, softcap=2.0))
    for array in (*inside.queries, *inside.keys, *inside.values):
        assert np.all(np.isfinite(array)), f"{style} overflows {dtype}"


@pytest.mark.parametrize("fill", FILLS)
def test_a_placement_keeps_the_contents_and_fills_the_rest(fill: str) -> None:
    case = Case(lengths=(5, 9), query_lens=(1, 1))
    inside = contents(case)
    launch = place(case, inside, Placement(seed=3, fill=fill, tail="out_of_range"))
    used = np.zeros(launch.key_cache.shape[:2], dtype=bool)
    for request, length in enumerate(case.lengths):
        positions = np.arange(length)
        at = launch.block_tables[request][positions // 4], positions % 4
        assert not used[at].any(), "two positions share a slot"
        used[at] = True
        assert np.array_equal(launch.key_cache[at], inside.keys[request])
        assert np.array_equal(launch.value_cache[at], inside.values[request])
    rest = launch.key_cache[~used]
    assert rest.size
    kinds: dict[str, Callable[[Any], Any]] = {"nan": np.isnan, "inf": np.isposinf}
    assert kinds.get(fill, np.isfinite)(rest).all()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_a_case_sees_what_the_specification_sees(causal: bool, window: int | None) -> None:
    case = Case(lengths=(0, 1, 6), query_lens=(2, 1, 6), causal=causal, window=window)
    for request, (length, rows) in enumerate(zip(case.lengths, case.query_lens, strict=True)):
        for row, position in enumerate(row_positions(rows, length)):
            assert case.sees(request, row).tolist() == list(seen(position, length, causal=causal, window=window))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_rounding_is_to_the_nearest_and_ties_go_to_even(dtype: str) -> None:
    bits = np.random.default_rng(0).integers(2**32, size=20_000, dtype=np.uint32)
    single = bits.view(np.float32)[np.isfinite(bits.view(np.float32))]
    with np.errstate(over="ignore"):
        assert np.array_equal(round_to(single, dtype), stored(single, dtype))
    if dtype == "bfloat16":
        down = (single.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
        up = ((single.view(np.uint32) & np.uint32(0xFFFF0000)) + np.uint32(0x10000)).view(np.float32).astype(np.float64)
        near = round_to(single, dtype).astype(np.float64)
        keep = np.isfinite(up) & np.isfinite(near)
        best = np.minimum(abs(single - down), abs(single - up))
        assert np.array_equal(abs(single - near)[keep], best[keep])


@pytest.mark.parametrize(
    ("name", "value"),
    [("softcap", "x"), ("softcap", -1.0), ("softcap", float("inf")), ("causal", 5), ("sinks", None), ("split_size", 3)],
)
def test_a_case_that_means_nothing_is_misuse(name: str, value: Any) -> None:
    with pytest.raises(Misuse, match=f"{name}="):
        Case(**{name: value})


@pytest.mark.parametrize("error", [-1e-9, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["u_accumulate", "u_exp", "u_weights"])
def test_a_rounding_that_bounds_nothing_is_misuse(name: str, error: float) -> None:
    changed: dict[str, Any] = {name: error}
    with pytest.raises(Misuse, match=f"{name}="):
        RoundingModel(tile=16, num_tiles=5, **changed)


def test_what_depends_on_unseen_positions_is_told_by_the_row_of_the_launch() -> None:
    """Not by its place among the rows that are compared."""

    class LastRowSeesAll(ReferenceAttention):
        def attend(self, problem: Problem) -> Any:
            out, lse = super().attend(problem)
            wide = super().attend(replace(problem, window=None))[0]
            return np.concatenate([out[:-1], wide[-1:]]), lse

    told = check_law(LastRowSeesAll(), "unseen", Case(query_lens=(2,), window=2))
    assert told is not None
    assert "nan): at (1, " in told
