"""The attention kit on a device: all of it, then its laws on larger and odder shapes than those it plans itself."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pagedkv.cli.parts.interpreted import UPCAST
from pagedkv.cli.parts.numerics_table import Row, load, save
from pagedkv.conformance.attention import Case, Configuration, check_law
from pagedkv.conformance.attention.bench import Bench, require_same_bits
from pagedkv.conformance.attention.placement import Placement
from pagedkv.conformance.attention.probes import census, one_hot
from pagedkv.conformance.attention.plan import LAWS, Size, configurations
from pagedkv.spec.words import ceil_div
from tests.gpu.kit import add_rows, hold, processes_for
from tests.gpu.site import Site

LARGE = {
    "decode beside prefill": Case(
        "bfloat16", 16, lengths=(4099, 1, 2047, 600), query_lens=(1, 1, 300, 5), num_kv_heads=2, group=4, head_dim=128
    ),
    "all options": Case(
        "float16", 1, lengths=(2051, 700, 33), query_lens=(40, 1, 33), group=5, head_dim=80,
        window=603, softcap=20.0, alibi=True, sinks=True,
    ),
    "long decode": Case("bfloat16", 64, lengths=(16381, 5003, 513, 0), query_lens=(1,) * 4, group=8, head_dim=64),
    "not causal": Case("float32", 100, lengths=(1203, 305), query_lens=(70, 3), group=1, head_dim=256, causal=False),
}  # fmt: skip
RELATIONS = [name for name, (kind, _) in LAWS.items() if kind == "relation" and name != "split_invariance"]

PROBED = {
    "prefill": Case("bfloat16", 16, lengths=(4099, 300), query_lens=(20, 9), num_kv_heads=1, group=16, head_dim=64),
    "window": Case("float16", 1, lengths=(8195,), query_lens=(3,), num_kv_heads=1, group=32, head_dim=64, window=5001),
    "16k": Case("bfloat16", 128, lengths=(16384,), query_lens=(1,), num_kv_heads=1, group=64, head_dim=128),
}

ODD = [
    Case(dtype, block_size, lengths, query_lens, heads, group, head_dim, value_dim=value_dim)
    for dtype, block_size, lengths, query_lens, heads, group, head_dim, value_dim in (
        ("bfloat16", 1, (70, 1), (1, 1), 2, 1, 80, None),
        ("float16", 2, (65, 9, 0), (12, 1, 0), 1, 5, 96, None),
        ("bfloat16", 3, (129, 4), (1, 1), 2, 7, 112, None),
        ("float32", 7, (40, 18), (17, 1), 1, 8, 32, None),
        ("bfloat16", 15, (64, 31), (20, 2), 1, 64, 64, None),
        ("bfloat16", 32, (257, 0, 5), (1, 1, 1), 1, 64, 128, None),
        ("float16", 64, (200, 64), (9, 8), 3, 5, 128, None),
        ("bfloat16", 128, (300, 129), (70, 1), 2, 7, 80, None),
        ("bfloat16", 192, (193,), (40,), 2, 8, 192, 128),
        ("float16", 256, (600, 256), (1, 1), 1, 1, 192, 128),
        ("bfloat16", 255, (511,), (3,), 2, 5, 256, None),
        ("float32", 256, (258, 20), (2, 20), 1, 7, 112, 64),
    )
]
BOUND_LAWS = ("bound", "lse_bound", "empty_rows", "one_hot", "census", "poison", "batch_invariance")


def test_the_kit_holds_in_full(site: Site, tmp_path: Path) -> None:
    """On a GPU its rows go to the table of numerics that `NUMERICS` names, as `make gpu` does."""
    size: Size = "full" if site.name == "cuda" else "tiny"
    whole = configurations(site.subject.capabilities, size)
    only = whole if site.name == "cuda" else [Configuration("float32"), Configuration("bfloat16")]
    reports = hold(site.name, size, processes=processes_for(site.name), only=only)
    assert [line for report in reports if not report.ok for line in report.lines()] == []
    wanted = {(each.dtype, each.features) for each in only}
    assert {(each.dtype, each.features) for report in reports for each in report.configurations} == wanted
    on_card = site.name == "cuda"
    directory = Path(os.environ.get("NUMERICS", tmp_path)) if on_card else tmp_path
    card = torch.cuda.get_device_name() if on_card else "no card"
    other = Row(UPCAST, "float32", (), "decode", 0.5, "a hash")
    if not on_card:
        save([other], directory)
    for _ in range(2):  # the second time in place of the first
        add_rows(reports, card, directory)
    rows = load(directory)
    assert {(row.dtype, row.features) for row in rows if row.card == card} == wanted
    assert on_card or [row for row in rows if row.card != card] == [other]


@pytest.mark.parametrize("law", RELATIONS)
@pytest.mark.parametrize("name", LARGE)
def test_no_bit_depends_on_what_must_not_matter(site: Site, name: str, law: str) -> None:
    """Compared is nothing where the case has nothing to compare, and then it is not called a test."""
    compared = LAWS[law][1](Bench(site.subject), site.sized(LARGE[name]))
    if not compared:
        pytest.skip(f"{name} has nothing that {law} compares")


@pytest.mark.parametrize("name", LARGE)
def test_fifty_runs_are_one(site: Site, name: str) -> None:
    bench, case = Bench(site.subject), site.sized(LARGE[name])
    first = bench.run(case)
    for _ in range(site.count(50)):
        require_same_bits(first, bench.run(case, Placement()), "the run")


@pytest.mark.parametrize("name", PROBED)
def test_every_position_is_read_and_no_other(site: Site, name: str) -> None:
    """A launch asks for as many positions as there are query heads, so there are as many launches as that takes."""
    case = site.sized(PROBED[name])
    seen = [len(case.sees(request, row)) for request, rows in enumerate(case.query_lens) for row in range(rows)]
    launches = ceil_div(max(seen), case.num_q_heads)
    assert one_hot(Bench(site.subject), case, launches) == launches * case.num_q_heads * len(seen)
    assert census(Bench(site.subject), case) > 0


@pytest.mark.parametrize("name", ["decode beside prefill", "long decode"])
def test_long_requests_stay_within_the_bound(site: Site, name: str) -> None:
    case = site.sized(replace(LARGE[name], num_kv_heads=1))
    few = replace(case, query_lens=tuple(min(rows, 9) for rows in case.query_lens))
    for law in ("bound", "lse_bound"):
        assert check_law(site.subject, law, few) is None


@pytest.mark.parametrize("case", ODD, ids=Case.describe)
def test_odd_shapes(site: Site, case: Case) -> None:
    broken = {law: check_law(site.subject, law, case) for law in BOUND_LAWS}
    assert {law: how for law, how in broken.items() if how} == {}
