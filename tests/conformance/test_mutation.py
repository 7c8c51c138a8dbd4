"""The tool that breaks modules: it breaks exactly what it is told to, and nothing else."""

import inspect
import sys

import pagedkv.reference.manager
import pagedkv.reference.pool
import pytest
from pagedkv.reference.manager import BlockManager
from pagedkv.spec.words import Config

from tests.conformance.illegal import ILLEGAL
from tests.conformance.legal import LEGAL
from tests.conformance.mutants.mutation import MutationError, altered, mutated_module

RELEASE = ("self.references[block] -= 1", "pass")


def test_dependents_see_the_altered_module_and_nobody_else_does() -> None:
    before = {name: module for name, module in sys.modules.items() if "__mutant_" not in name}
    dependents = [f"pagedkv.reference.{name}" for name in ("base", "residency", "growth", "prefixes", "manager")]
    broken = mutated_module("pagedkv.reference.pool", [RELEASE], dependents)
    manager = broken.BlockManager(Config(num_blocks=2, block_size=2))
    manager.admit("a", [1])
    manager.free("a")
    assert manager.observe().available_blocks == 1
    assert {name: module for name, module in sys.modules.items() if "__mutant_" not in name} == before
    intact = BlockManager(Config(num_blocks=2, block_size=2))
    intact.admit("a", [1])
    intact.free("a")
    assert intact.observe().available_blocks == 2


def test_the_altered_text_can_be_read_back() -> None:
    """Kernel compilers and tracebacks read the source of a function through `inspect`."""
    broken = mutated_module("pagedkv.reference.pool", [RELEASE])
    assert "references[block] -= 1" not in inspect.getsource(broken.BlockPool.release)
    assert "references[block] -= 1" in inspect.getsource(pagedkv.reference.pool.BlockPool.release)


@pytest.mark.parametrize("anchor", ["no such text", "self"])
def test_an_anchor_that_does_not_occur_once_is_an_error(anchor: str) -> None:
    with pytest.raises(MutationError, match="not once"):
        altered("pagedkv.reference.pool", [(anchor, "")])


def test_a_module_without_source_is_an_error() -> None:
    with pytest.raises(MutationError, match="no source"):
        altered("sys", [])


@pytest.mark.parametrize("name", ILLEGAL)
def test_every_illegal_manager_loads(name: str) -> None:
    """Its anchors are still there, and it still is a manager."""
    manager = ILLEGAL[name].load()(Config(num_blocks=4, block_size=2))
    assert not isinstance(manager, BlockManager)
    assert manager.observe().available_blocks == 4


@pytest.mark.parametrize("name", LEGAL)
def test_every_legal_manager_declares_what_it_is(name: str) -> None:
    manager = LEGAL[name](Config(num_blocks=4, block_size=2))
    seen = manager.observe()
    assert manager.capabilities.reports_index == (seen.index is not None)
