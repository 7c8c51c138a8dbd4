"""The subjects of `campaigns`, each where its project is installed: a few programs, and every trace that must fail."""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
from pagedkv.conformance.adapters.scheduler import OWN_LAWS
from pagedkv.conformance.failures.replay import replay
from pagedkv.conformance.failures.shrinking import Failure
from pagedkv.conformance.programs.plans import declared
from pagedkv.conformance.search import exhaustive, fuzz
from pagedkv.conformance.subjects import subject
from pagedkv.spec import Misuse
from pagedkv.spec.trace import load

from tests.adapters.campaign import ROOT
from tests.adapters.campaigns import ADAPTERS, CAMPAIGNS, Campaign, Variant

IMPORTED = {"vllm": "vllm", "transformers": "transformers", "flex": "torch", "sglang": "sglang"}
"""What has to be there for a campaign."""
PROGRAMS = 12


def present(campaign: Campaign) -> pytest.MarkDecorator:
    needed = IMPORTED[campaign.name]
    return pytest.mark.skipif(
        find_spec(needed) is None, reason=f"{needed} is not installed: make adapters-{campaign.name}"
    )


def data(campaign: Campaign) -> Any:
    return json.loads((ROOT / "docs" / "conformance" / f"{campaign.name}.json").read_text(encoding="utf-8"))


VARIANTS = [
    pytest.param(campaign, variant, marks=present(campaign), id=variant.label)
    for campaign in CAMPAIGNS.values()
    for variant in campaign.variants
]
BROKEN = [
    pytest.param(entry, marks=present(campaign), id=entry["trace"].rpartition("/")[2])
    for campaign in CAMPAIGNS.values()
    for entry in data(campaign)["broken"]
]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What warns while other projects are imported is not ours to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        yield
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize(("campaign", "variant"), VARIANTS)
def test_what_breaks_is_known(campaign: Campaign, variant: Variant) -> None:
    known = {entry["law"] for entry in data(campaign)["broken"] if entry["factory"] == variant.factory}
    factory, broken = subject(variant.factory), set[str]()

    def note(failure: Failure) -> str:
        broken.add(failure.violation.law)
        return failure.violation.law

    report = fuzz.run(factory, seed=1, programs=PROGRAMS * variant.draws, steps=variant.steps, excuse=note)
    assert report.programs >= PROGRAMS
    for part in exhaustive.slices_for(declared(factory)):
        with suppress(Misuse):  # a pool that it does not take
            exhaustive.run(factory, part, max_states=8, excuse=note)
    assert broken <= known
    assert not broken & OWN_LAWS


@pytest.mark.parametrize("campaign", CAMPAIGNS.values(), ids=list(CAMPAIGNS))
def test_verdicts_are_written_down_as_they_are(campaign: Campaign) -> None:
    """`python -m tests.adapters NAME --verdicts` sees to that."""
    for entry in data(campaign)["broken"]:
        assert campaign.verdict(entry["factory"], entry["law"]).items() <= entry.items()


@pytest.mark.parametrize("entry", BROKEN)
def test_a_trace_still_fails_as_it_is_written(entry: dict[str, Any]) -> None:
    report = replay(load(ROOT / entry["trace"]), subject(entry["factory"]))
    assert (report.verdict, report.law, report.detail) == ("violation", entry["law"], entry["detail"])


@present(CAMPAIGNS["vllm"])
def test_vllm_breaks_no_law_before_it_has_two_copies_of_a_block() -> None:
    """The verdict on all that `VllmSubject` breaks, for every program and not only for the traces."""
    copies: list[bool] = []

    class Watched(import_module(f"{ADAPTERS}.vllm").VllmSubject):  # type: ignore[misc]  # known when it is there
        def index(self) -> Any:
            found = super().index()
            copies.append(len(found) < sum(block.block_hash is not None for block in self.manager.block_pool.blocks))
            return found

    failures: list[bool] = []

    def note(failure: Failure) -> str:
        failures.append(any(copies))
        return failure.violation.law

    for number in range(60):
        copies.clear()
        fuzz.run(Watched, seed=number, programs=1, steps=40, excuse=note)
    assert failures
    assert all(failures)


@pytest.mark.parametrize("name", [name for name, module in IMPORTED.items() if find_spec(module) is None])
def test_without_its_project_a_subject_says_what_to_install(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        declared(subject(CAMPAIGNS[name].variants[0].factory))


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_flex_takes_a_page_of_another_row_for_its_own() -> None:
    """What the broken law of `FlexSubject` leads to, in torch alone. When this fails, the bug is repaired."""
    torch, paged = import_module("torch"), import_module("torch.nn.attention.experimental._paged_attention")
    pages = paged.PagedAttention(n_pages=2, page_size=1, max_batch_size=2, device="cpu")
    first, second, one = torch.tensor([0]), torch.tensor([1]), torch.tensor([1])
    pages.reserve(first, one)
    pages.erase(first)
    pages.reserve(second, one)
    pages.reserve(first, one)
    assert sorted(pages.page_table[:, 0].tolist()) == [0, 1]
    sees = pages.get_mask_mod(None, kv_len=torch.tensor([1, 1]))
    assert [bool(sees(*map(torch.tensor, (0, 0, 0, slot)))) for slot in (0, 1)] == [True, True]
