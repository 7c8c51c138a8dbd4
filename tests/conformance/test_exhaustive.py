"""The exhaustive slices: their counts are pinned, and what they must find, they find."""

import signal
from typing import cast

import pytest

from pagedkv.conformance.differential import in_time
from pagedkv.conformance.differential.model import ModelSubject
from pagedkv.conformance.search.exhaustive import canonical, run, slices_for
from pagedkv.conformance.search.slices import SLICES
from pagedkv.optimized.device.subject import DeviceSubject
from pagedkv.optimized.subject import OptimizedSubject
from pagedkv.reference import BlockManager
from pagedkv.spec import Config, Free, Outcome, RequestId, State, admit
from pagedkv.spec.subject import SubjectFactory

PINNED = {
    "plain": (62, 369, 27),
    "core": (307, 1810, 65),
    "truncate": (18, 116, 5),
    "rewind": (39, 291, 6),
    "chunks": (72, 586, 165),
    "returns": (360, 2568, 243),
    "hits": (60, 251, 20),
    "lookups": (98, 631, 96),
    "rewritten": (126, 642, 25),
    "siblings": (109, 489, 34),
    "index": (1477, 14342, 2544),
    "pins": (1871, 17697, 3297),
    "steps": (3745, 31746, 5857),
    "swap": (1449, 12439, 1207),
    "window": (289, 2832, 923),
    "rolling": (94, 743, 285),
    "sliding": (28, 102, 5),
    "sliding_hits": (104, 422, 33),
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
    report = run(factory, SLICES[name])
    assert report.failure is None, report.failure
    assert (report.states, report.transitions, report.refused) == PINNED[name]


def test_the_device_pool_takes_part_where_nothing_is_the_host_s() -> None:
    assert [name for factory, name in CASES if factory is ON_THE_DEVICE] == ["core", "rewind", "siblings", "rolling"]


def test_the_states_do_not_depend_on_how_blocks_were_relabelled() -> None:
    assert run(BlockManager, SLICES["core"], seed=1).states == run(BlockManager, SLICES["core"], seed=2).states


def test_a_state_has_one_description_under_any_names_and_places() -> None:
    one, _ = admit(State(Config(num_blocks=4, block_size=2)), "a", (1, 2, 3))
    one, _ = admit(one, "b", (7,))
    two, _ = admit(State(Config(num_blocks=4, block_size=2)), "x", (7,))
    two, _ = admit(two, "y", (1, 2, 3))
    assert canonical(one, True) == canonical(two, True)
    longer, _ = admit(State(Config(num_blocks=4, block_size=2)), "x", (7, 8))
    assert canonical(one, True) != canonical(longer, True)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="only a POSIX system can interrupt what hangs")
def test_a_hang_is_a_violation_of_the_transition_that_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its path is told; what hangs when a path is replayed, too."""

    class Hanging(ModelSubject):
        def free(self, request: RequestId) -> Outcome:
            while True:
                pass

    monkeypatch.setattr(in_time, "LIMIT_S", 0.1)
    failure = run(Hanging, SLICES["core"]).failure
    assert failure is not None
    assert (failure.violation.law, failure.program[-1]) == (in_time.IN_TIME, Free("a"))
