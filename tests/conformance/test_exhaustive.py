"""The exhaustive slices: their counts are pinned, and what they must find, they find."""

from typing import cast

import pytest

from pagedkv.conformance.exhaustive import canonical, run, slices_for
from pagedkv.conformance.slices import SLICES
from pagedkv.optimized.device.subject import DeviceSubject
from pagedkv.optimized.subject import OptimizedSubject
from pagedkv.reference import BlockManager
from pagedkv.spec import Config, Misuse, State, admit
from pagedkv.spec.subject import SubjectFactory

PINNED = {
    "core": (307, 1810, 65),
    "index": (1477, 14342, 2544),
    "pins": (1871, 17697, 3297),
    "steps": (3745, 28920, 3031),
    "swap": (1449, 12439, 1207),
    "window": (289, 2832, 923),
    "rolling": (94, 743, 285),
    "sinks": (742, 6708, 1503),
}
"""name -> states up to symmetry, transitions, refusals. `core` agrees with an independent breadth-first search."""


ON_THE_DEVICE = cast(SubjectFactory, DeviceSubject)
"""It takes part in the slices that its capabilities allow."""
CASES: list[tuple[SubjectFactory, str]] = [
    (factory, name) for factory in (BlockManager, OptimizedSubject) for name in SLICES
]
CASES += [(ON_THE_DEVICE, part.name) for part in slices_for(DeviceSubject.capabilities)]


@pytest.mark.parametrize(("factory", "name"), CASES)
def test_every_transition_of_a_slice_holds_and_their_number_is_known(factory: SubjectFactory, name: str) -> None:
    report = run(factory, name)
    assert report.violation is None, f"{report.violation}\n" + "\n".join(map(repr, report.path))
    assert (report.states, report.transitions, report.refused) == PINNED[name]


def test_the_device_pool_takes_part_where_nothing_is_the_host_s() -> None:
    assert [name for factory, name in CASES if factory is ON_THE_DEVICE] == ["core", "rolling"]


def test_the_states_do_not_depend_on_how_blocks_were_relabelled() -> None:
    assert run(BlockManager, "core", seed=1).states == run(BlockManager, "core", seed=2).states


def test_a_state_has_one_description_under_any_names_and_places() -> None:
    one, _ = admit(State(Config(num_blocks=4, block_size=2)), "a", (1, 2, 3))
    one, _ = admit(one, "b", (7,))
    two, _ = admit(State(Config(num_blocks=4, block_size=2)), "x", (7,))
    two, _ = admit(two, "y", (1, 2, 3))
    assert canonical(one, True) == canonical(two, True)
    longer, _ = admit(State(Config(num_blocks=4, block_size=2)), "x", (7, 8))
    assert canonical(one, True) != canonical(longer, True)


def test_an_unknown_slice_is_misuse() -> None:
    with pytest.raises(Misuse, match=r"slice_name='sideways'.*core"):
        run(BlockManager, "sideways")
