"""Our own implementations, held against the specification by the attention kit, and broken on purpose."""

from collections.abc import Iterator

import pytest
import torch

from pagedkv.conformance.attention import Configuration, check_law, planned_checks, run
from pagedkv.conformance.attention.plan import LAWS, OPTIONS, configurations
from pagedkv.optimized.attention.backends import BackendName
from pagedkv.optimized.attention.subject import InterpretedTritonAttention, OptimizedAttention
from pagedkv.reference.attention import ReferenceAttention
from tests.conformance.attention_kernel_mutants import KERNEL_MUTANTS
from tests.conformance.move_kernel_mutants import MOVE_MUTANTS
from tests.conformance.mutants.mutation import Mutant

MASKED = tuple(name for name in OPTIONS if name != "non_causal")
LARGE = (Configuration("float32"), Configuration("float16", ("causal_prefill",)), Configuration("bfloat16", MASKED))
"""Run in full by the tests; `pagedkv verify` runs them all."""


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Shapes are tiny: threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_reference_keeps_every_law(seed: int) -> None:
    report = run(ReferenceAttention(), seed=seed, size="tiny")
    assert report.ok, "\n".join(report.lines())
    assert set(report.laws) == set(LAWS)
    assert report.undeclared == ()
    assert all(each.worst_rho <= 1 for each in report.configurations)


def test_the_reference_keeps_every_law_on_larger_shapes() -> None:
    report = run(ReferenceAttention(), seed=0, size="full", only=LARGE)
    assert report.ok, "\n".join(report.lines())


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_a_backend_of_the_cpu_keeps_every_law(backend: BackendName) -> None:
    report = run(OptimizedAttention(backend=backend), seed=0, size="tiny")
    assert report.ok, "\n".join(report.lines())
    assert set(LAWS) - set(report.laws) == ({"split_invariance"} if backend == "numba" else set())


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_a_backend_of_the_cpu_keeps_every_law_on_larger_shapes(backend: BackendName) -> None:
    report = run(OptimizedAttention(backend=backend), seed=0, size="full", only=LARGE)
    assert report.ok, "\n".join(report.lines())


@pytest.mark.parametrize("configuration", [Configuration("float32"), Configuration("bfloat16", MASKED)], ids=str)
def test_the_interpreted_kernels_keep_every_law(configuration: Configuration) -> None:
    report = run(InterpretedTritonAttention(), seed=0, size="tiny", only=[configuration])
    assert report.ok, "\n".join(report.lines())


@pytest.mark.parametrize("mutant", KERNEL_MUTANTS + MOVE_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_kernel_mutant_is_caught_by_a_law_that_names_it(mutant: Mutant) -> None:
    subject = mutant.load()()
    laws = mutant.breaks.split()
    assert mutant.needs <= set(OPTIONS)
    assert set(laws) <= set(LAWS)
    planned = (
        check
        for configuration in configurations(subject.capabilities, "tiny")
        if configuration.dtype == "float32" and mutant.needs <= set(configuration.features)
        for check in planned_checks(subject, configuration, "tiny")
    )
    found = (check_law(subject, law, case) for law, case in planned if law in laws)
    assert any(found), f"{mutant.name} survives {laws}"
