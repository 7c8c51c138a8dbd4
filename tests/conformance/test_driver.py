"""The driver against subjects that lie, hide or crash, and against odd ones that are right."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pagedkv.conformance.differential.driver import Differential
from pagedkv.conformance.differential.model import ModelSubject
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.search import exhaustive
from pagedkv.conformance.search.fuzz import run
from pagedkv.conformance.search.slices import SLICES
from pagedkv.spec import (
    HOLE, Admit, Append, Block, Commit, Config, Copy, Evict, Fork, Free, Identity, Lookup, Misuse, Ok, Operation,
    Outcome, Refused, RequestId,
)  # fmt: skip
from pagedkv.spec.subject import Lengths, Snapshot

CONFIG = Config(num_blocks=4, block_size=2)
PROGRAM = (Admit("a", (1, 2, 3)), Commit("a", 3), Fork("a", "b"), Append("b", (4,)), Free("a"))


def violated(subject: type[ModelSubject], program: Sequence[Operation] = PROGRAM, **options: Any) -> Violation:
    """The violation that a program meets."""
    differential = Differential(subject, CONFIG, **options)
    try:
        for operation in program:
            differential.step(operation)
    except Violation as violation:
        return violation
    raise AssertionError(f"{subject.__name__} passed")


class Answering(ModelSubject):
    """Appends, and then answers something else."""

    answer: Any = None

    def append(self, request: RequestId, tokens: Sequence[int]) -> Any:
        super().append(request, tokens)
        return self.answer


_ok: Any = Ok  # what follows is wrong on purpose
_refused: Any = Refused
ODD_ANSWERS = [
    None,
    _refused("capacity"),
    _ok(slots=np.array([3])),
    _ok(slots=(3.0,)),
    _ok(copies=None),
    _ok(copies=((1, 2),)),
    _ok(cached_tokens=0.0),
    _ok(copies=(Copy(0, 2**63),)),
    _ok(evicted=False),
    _ok(swapped=(1, 2)),
]


@pytest.mark.parametrize("answer", ODD_ANSWERS, ids=repr)
def test_an_answer_of_the_wrong_form_is_a_violation(answer: Any) -> None:
    subject = type("Odd", (Answering,), {"answer": answer})
    assert violated(subject).law == "the answer is Ok or Refused, one a row"


class Exiting(ModelSubject):
    """Ends the process."""

    def append(self, request: RequestId, tokens: Sequence[int]) -> Outcome:
        raise SystemExit(0)


class Stumbling(ModelSubject):
    """Raises something that is no Misuse for an unknown request."""

    def free(self, request: RequestId) -> Outcome:
        if request not in self.state.requests:
            raise KeyError(request)
        return super().free(request)


def test_only_misuse_may_be_raised() -> None:
    law = "misuse raises Misuse, and nothing else is raised"
    assert violated(Exiting).law == law
    assert violated(Stumbling, [Free("nobody")]).law == law


class Copied(ModelSubject):
    """Cannot be copied, though it says so."""

    def copy(self) -> "Copied":
        raise RuntimeError("no")


def test_what_cannot_be_copied_is_a_violation_of_the_state_that_it_is_in() -> None:
    report = exhaustive.run(Copied, SLICES["core"])
    assert report.failure is not None
    assert report.failure.violation.law == "a subject that has copy can be copied"
    assert (report.states, report.failure.program) == (1, ())


class Collection(ModelSubject, dict[Any, Any]):
    """Has the `copy` of `dict`."""


class Without(ModelSubject):
    copy = None


@pytest.mark.parametrize("subject", [Collection, Without])
def test_a_copy_that_is_not_of_the_subject_is_none(subject: type[ModelSubject]) -> None:
    assert exhaustive.run(subject, SLICES["rewind"]).failure is None


def test_an_exception_without_a_module_breaks_the_law_like_any_other() -> None:
    class Homeless(Exception):
        __module__ = None  # type: ignore[assignment]  # that is what is odd

    class Crashing(ModelSubject):
        def append(self, request: RequestId, tokens: Sequence[int]) -> Outcome:
            raise Homeless

    assert violated(Crashing).law == "misuse raises Misuse, and nothing else is raised"


def test_the_name_of_a_law_is_a_line_though_it_be_a_stranger_s() -> None:
    assert len(Violation("a\nlaw", "broken").law.splitlines()) == 1
    assert len(str(Violation("a\nlaw", "broken")).splitlines()) == 1
    assert len(Violation("law " * 10_000, "broken").law) < 3_000


@pytest.mark.parametrize(("blocks", "computed"), [(256, 256), (2_000, 256)])
def test_the_end_of_a_program_grows_with_the_pool_and_not_with_its_square(blocks: int, computed: int) -> None:
    """The index has whole texts: of all that a large pool holds they would fill the memory."""
    differential = Differential(ModelSubject, Config(blocks, 4))
    differential.finish()
    admitted, committed, _ = differential.log
    assert isinstance(admitted, Admit)
    assert isinstance(committed, Commit)
    assert (len(admitted.tokens), committed.computed) == (4 * blocks, 4 * computed)


class Failing(ModelSubject):
    """Names the law itself, as a subject in a process does that has ended."""

    def observe(self, requests: Sequence[RequestId] | None = None) -> Snapshot:
        if self.state.requests:
            raise Violation("a law", "broken")
        return super().observe(requests)

    def free(self, request: RequestId) -> Outcome:
        raise Violation("a law", "broken")


def test_what_a_subject_says_of_its_own_end_gets_the_operation() -> None:
    for operation in (Free("nobody"), Admit("a", (1,))):
        failure = violated(Failing, [operation])
        assert (failure.law, failure.detail, failure.operation) == ("a law", "broken", operation)


class Raising(dict[Any, Any]):
    """Cannot be read."""

    def values(self) -> Any:
        raise RuntimeError


class Unshown:
    def __repr__(self) -> str:
        raise RuntimeError


class Showing(ModelSubject):
    """Shows itself through a distorting mirror."""

    @staticmethod
    def mirror(seen: Snapshot) -> Any:
        return seen

    def observe(self, requests: Sequence[RequestId] | None = None) -> Any:
        return self.mirror(super().observe(requests))


MIRRORS = {
    "nothing": lambda seen: None,
    "no table": lambda seen: replace(seen, tables=dict.fromkeys(seen.tables)),
    "an array as table": lambda seen: replace(seen, tables={r: np.array(t) for r, t in seen.tables.items()}),
    "tables of the unknown": lambda seen: replace(seen, tables={**seen.tables, "nobody": (0,)}),
    "fractions of blocks": lambda seen: replace(seen, available_blocks=float(seen.available_blocks)),
    "blocks that no text can show": lambda seen: replace(seen, tables=dict.fromkeys(seen.tables, (10**5000,))),
    "as many available": lambda seen: replace(seen, available_blocks=10**5000),
    "as many positions": lambda seen: replace(seen, lengths={r: Lengths(10**5000, 0, 0) for r in seen.lengths}),
    "an index of such": lambda seen: replace(seen, index={10**5000: Identity("", (1,))}),
    "no index, though declared": lambda seen: replace(seen, index=None),
    "lengths that raise": lambda seen: replace(seen, lengths=Raising(seen.lengths)),
    "references that cannot be shown": lambda seen: replace(seen, references={Unshown(): 1}),
    "an index that cannot be shown": lambda seen: replace(seen, index={0: Unshown()}),
}


@pytest.mark.parametrize("name", MIRRORS)
def test_an_observation_of_the_wrong_form_is_a_violation(name: str) -> None:
    subject = type("Odd", (Showing,), {"mirror": staticmethod(MIRRORS[name])})
    assert violated(subject).law == "a subject can be observed"


def test_an_entry_that_no_text_can_show_is_told_all_the_same() -> None:
    mirror = staticmethod(lambda seen: replace(seen, index={0: Identity("", (10**5000,))}))
    assert "their block holds" in violated(type("Odd", (Showing,), {"mirror": mirror})).law


def test_a_subject_cannot_pass_by_hiding_what_was_touched() -> None:
    hiding = type("Hiding", (Showing,), {"mirror": staticmethod(lambda seen: replace(seen, tables={}, lengths={}))})
    assert violated(hiding, touched_only=True).law == "frame: the known requests"


class MovingRecency(ModelSubject):
    """A lookup counts as use: evict spares what was looked up last."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.capabilities = replace(self.capabilities, policy="lru")
        self.looked_up: set[Block] = set()

    def lookup(self, tokens: Sequence[int], namespace: Any = "") -> Outcome:
        self.looked_up = {b for b, i in self.state.entries.items() if i.tokens == tuple(tokens)}
        return super().lookup(tokens, namespace)

    def evict(self, blocks: int) -> Outcome:
        longest = sorted(self.state.idle_since, key=lambda b: b in self.looked_up)
        self.choices = replace(self.choices, victims=lambda state, count: longest[:count])
        return super().evict(blocks)


def test_a_lookup_that_counts_as_use_is_noticed() -> None:
    freed = [step for name, first in (("a", 1), ("b", 5)) for step in _computed_and_freed(name, first)]
    assert violated(MovingRecency, [*freed, Lookup((1, 2)), Evict(1)]).law.startswith("lru")
    differential = Differential(MovingRecency, CONFIG)
    for operation in (*freed, Evict(1)):  # without the lookup it is right
        differential.step(operation)


def _computed_and_freed(name: str, first: int) -> list[Operation]:
    return [Admit(name, (first, first + 1)), Commit(name, 2), Free(name)]


class LateRelease(ModelSubject):
    """Shows, and counts, the blocks that have died behind a window until somebody else needs them. That is legal."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.before: dict[RequestId, tuple[Block, ...]] = {}

    def observe(self, requests: Sequence[RequestId] | None = None) -> Snapshot:
        seen = super().observe(requests)
        tables, references = dict(seen.tables), dict(seen.references or {})
        for request, table in seen.tables.items():
            old = self.before.get(request, ())
            late = [o if t == HOLE and o not in self.state.references else t for t, o in zip(table, old, strict=False)]
            tables[request] = (*late, *table[len(late) :])
            for block, ours in zip(tables[request], table, strict=True):
                if block != ours:
                    references[block] = references.get(block, 0) + 1
        resident = {name for name, r in self.state.requests.items() if r.residency == "resident"}
        self.before = {name: table for name, table in (self.before | tables).items() if name in resident}
        return replace(seen, tables=tables, references=None if seen.references is None else references)

    def permute(self, new_block: Sequence[Block]) -> Outcome:
        self.before = {}
        return super().permute(new_block)


def test_blocks_behind_a_window_may_be_released_late(pytestconfig: pytest.Config) -> None:
    seed = pytestconfig.getoption("hypothesis_seed", None)
    report = run(LateRelease, seed=int(seed or 0) % 2**32, programs=60)
    assert report.violation is None, report.violation


def test_a_late_release_outlives_a_swap() -> None:
    assert run(LateRelease, seed=517732742, programs=60).violation is None


@pytest.mark.parametrize("touched_only", [False, True])
def test_a_refusal_under_a_window_does_not_tell_what_a_hidden_index_found(touched_only: bool) -> None:
    """What is found becomes holes, holes decide whether a text can ever fit, and so which reason is given."""

    def hidden(config: Config) -> ModelSubject:
        return ModelSubject(config, reports_index=False)

    config = Config(num_blocks=5, block_size=1, sliding_window=1)
    differential = Differential(hidden, config, touched_only=touched_only)
    for operation in (Admit("a", (0, 0)), Commit("a", 2), Append("a", (0, 0)), Admit("d", (0,) * 6)):
        outcome = differential.step(operation)
    assert not isinstance(outcome, Misuse)
    assert isinstance(outcome[0], Refused)
