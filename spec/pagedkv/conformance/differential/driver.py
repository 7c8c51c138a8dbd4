"""Specification and subject, side by side.

`Differential.step` runs one operation on the subject, looks at what the subject decided (which blocks, which
evictions), asks the specification whether that was legal, and then compares everything: the return value, tables,
lengths, availability, references, index, contents by the shadow, and the meaning. What an allocator may choose is
taken from what is observed, so no legal allocator is failed for its choices.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Final, NamedTuple

from pagedkv.conformance.differential.compare import (
    Difference, beside, differences, lru_difference, outcome_difference, subject_call,
)  # fmt: skip
from pagedkv.conformance.differential.form import copying, malformed_answer, malformed_snapshot
from pagedkv.conformance.differential.in_time import in_time
from pagedkv.conformance.differential.shadow import Shadow
from pagedkv.conformance.differential.violation import ANSWERS, COPIED, OBSERVED, RAISES, Violation, told
from pagedkv.spec import (
    CANONICAL, HOLE, Admit, Append, Attend, Batch, Block, Choices, Commit, Config, EndStep, Evict, Fork, Free,
    IllegalChoice, Misuse, Ok, Operation, Outcome, Permute, Preempt, Refused, RequestId, Reserve, Resume, State,
    Truncate, Unpin, alpha, apply, broken, ceil_div, permutation,
)  # fmt: skip
from pagedkv.spec import meaning as l0
from pagedkv.spec.frame import broken_by
from pagedkv.spec.misuse import shown
from pagedkv.spec.operations import requests_of, rows_of
from pagedkv.spec.prefix import forget
from pagedkv.spec.program import Run
from pagedkv.spec.subject import Capabilities, Snapshot, SubjectFactory


COMPUTED: Final = 256
"""Blocks that are computed at the end of a program: an index of whole texts grows with the square of their lengths."""


class _Row(NamedTuple):
    operation: Operation
    outcome: Ok


class Differential:
    """One subject with an empty pool, held against the specification.

    `touched_only` compares what an operation touched and leaves the rest to `check_all`, for long workloads. Raises
    `Misuse` if the subject does not have this pool.
    """

    def __init__(self, factory: SubjectFactory, config: Config, *, touched_only: bool = False) -> None:
        self.config, self.touched_only = config, touched_only
        with in_time(None), told(RAISES, "making it", None):
            self.subject = factory(config)
            self.capabilities = self.subject.capabilities
        if not isinstance(self.capabilities, Capabilities):
            raise Violation(OBSERVED, f"it declares {shown(self.capabilities)}, not a Capabilities")
        self.state = State(config)
        self.meaning: l0.Meaning = {}
        self.shadow = Shadow(config)
        self.log: list[Operation] = []
        self.answer: Sequence[Outcome] | Misuse | None = None
        """What the subject said last, well formed."""
        self.seen: Snapshot | None = None
        """What it showed last."""
        self._asked: Sequence[RequestId] | None = None
        """What the last observation was asked for; None: everything."""

    def step(self, operation: Operation) -> tuple[Outcome, ...] | Misuse:
        """Run one operation on both sides. Returns the outcomes (one a row), or the misuse that both sides raised.

        Raises `Violation`.
        """
        self.log.append(operation)
        with in_time(operation):
            return self._step(operation)

    def _step(self, operation: Operation) -> tuple[Outcome, ...] | Misuse:
        self.answer = self.seen = None
        self.answer = answer = self._ask_subject(operation)
        self.seen = seen = self._observe(operation)
        choices = self._choices(operation, answer, seen)
        try:
            run = self._specified(operation, choices, answer, hidden=seen.index is None)
        except Misuse as misuse:
            if not isinstance(answer, Misuse):
                detail = f"{misuse}, but the subject answered {answer}"
                raise Violation("misuse is an exception", detail, operation) from misuse
            self._compare(seen, self.state, "misuse changes nothing", operation)
            return misuse  # a subject names its arguments as it likes
        except IllegalChoice as illegal:
            raise Violation(illegal.law, illegal.detail, operation, illegal.kind) from illegal
        if isinstance(answer, Misuse):
            raise Violation("what is legal is no misuse", f"the subject raised {answer!r}", operation) from answer
        for ours, theirs in zip(run.outcomes, answer, strict=True):
            if found := outcome_difference(ours, theirs):
                raise Violation(found.law, found.detail + beside(found, seen, self.state, run.state), operation)
        before = self.state
        self.state = self._adopt_evictions(run.state, seen, operation, refused=run.state is before)
        self._compare(seen, self.state, "refused changes nothing" if run.state is before else None, operation)
        ordered = self.capabilities.policy == "lru" and seen.index is not None
        if ordered and (disorder := lru_difference(before, self.state, operation)):
            raise Violation(*disorder, operation)
        self._follow(operation, answer, seen, before)
        return run.outcomes

    def _specified(
        self, operation: Operation, choices: Choices, answer: Sequence[Outcome] | Misuse, *, hidden: bool
    ) -> Run:
        """The specification's answer. A refusal does not tell how much a hidden index had found: any amount will do."""
        run = apply(self.state, operation, choices)
        if isinstance(answer, Misuse) or not isinstance(answer[0], Refused) or run.outcomes == tuple(answer):
            return run
        if hidden and isinstance(operation, Admit | Resume):
            tokens = operation.tokens if isinstance(operation, Admit) else self.state.requests[operation.request].tokens
            for hits in range(len(tokens) // self.config.block_size + 1):
                with suppress(IllegalChoice):
                    other = apply(self.state, operation, replace(choices, hits=_bounded(hits)))
                    if other.outcomes == tuple(answer):
                        return other
        return run

    def copy(self) -> "Differential | None":
        """A copy that goes its own way from here, if the subject has a `copy` method. Raises `Violation`."""
        copied = copying(self.subject)
        if copied is None:
            return None
        twin = copy(self)
        with in_time(None), told(COPIED, "copy", None):
            twin.subject = copied()
        if twin.subject is self.subject or not isinstance(twin.subject, type(self.subject)):
            raise Violation(COPIED, f"copy returned {shown(twin.subject)}, not another subject like it")
        twin.shadow, twin.log = self.shadow.copy(), list(self.log)
        return twin

    def check_all(self) -> None:
        """Compare the whole state, adopt evictions that could not be seen, and check invariants and meaning."""
        with in_time(None):
            seen = self._observe(None)
            self.state = self._adopt_evictions(self.state, seen, None, refused=False)
            self._compare(seen, self.state, None, None)
            self._check_contents(seen, None, None)

    def finish(self) -> None:
        """The drain rule: without requests, pins and steps every block is available, and what fits is admitted and
        computed, as an engine would.

        Each step compares availability and answers, so taking the steps is the check.
        """
        for step in list(self.state.steps):
            self.step(EndStep(step))
        for pinned, stack in list(self.state.pins.items()):
            for _ in stack:
                self.step(Unpin(pinned.tokens, pinned.namespace))
        for request in list(self.state.requests):
            self.step(Free(request))
        whole = tuple(range(self.config.num_blocks * self.config.block_size))
        self.step(Admit("drain", whole, "drain"))
        self.step(Commit("drain", min(len(whole), COMPUTED * self.config.block_size)))
        self.step(Free("drain"))

    def _ask_subject(self, operation: Operation) -> tuple[Outcome, ...] | Misuse:
        """The subject's outcomes, well formed, or its misuse."""
        try:
            if isinstance(operation, Attend):  # reads, and is not for a block manager to answer
                return apply(self.state, operation).outcomes
            with told(RAISES, "the subject", operation):
                answer = subject_call(self.subject, operation, self.config)
        except Misuse as misuse:
            return misuse
        with told(ANSWERS, "the answer", operation):
            wrong = malformed_answer(answer, len(rows_of(operation)))
        if wrong:
            raise Violation(ANSWERS, wrong, operation)
        return answer

    def _observe(self, operation: Operation | None) -> Snapshot:
        """All that can be seen, or of a long workload what the operation touched."""
        self._asked = None if not self.touched_only or isinstance(operation, Evict | None) else requests_of(operation)
        with told(OBSERVED, "observe", operation):
            seen = self.subject.observe(self._asked)
            wrong = malformed_snapshot(seen, self.capabilities, whole=self._asked is None)
        if wrong:
            raise Violation(OBSERVED, wrong, operation)
        return seen

    def _choices(self, operation: Operation, answer: Sequence[Outcome] | Misuse, seen: Snapshot) -> Choices:
        """What the subject decided, read off what can be seen."""
        answers = () if isinstance(answer, Misuse) else answer
        rows = rows_of(operation)
        carried_out = [row for row, outcome in zip(rows, answers, strict=False) if isinstance(outcome, Ok)]
        served = {request for row in carried_out for request in requests_of(row)}

        def block(state: State, request: RequestId, logical: int) -> Block:
            table = seen.tables.get(request, ()) if request in served else ()
            return table[logical] if logical < len(table) else CANONICAL.block(state, request, logical)

        def hits(must: int, may: int) -> int:
            if seen.index is not None or not answers:
                return may
            return answers[0].cached_tokens // self.config.block_size if isinstance(answers[0], Ok) else must

        def victims(state: State, count: int) -> list[Block]:
            return [b for b in state.entries if seen.index is None or b not in seen.index]

        def remap(request: RequestId, logical: int, own: Block, indexed: Block) -> bool:
            return any((own, indexed) in o.remapped for o in answers if isinstance(o, Ok))

        return Choices(block=block, hits=hits, victims=victims, remap=remap)

    def _adopt_evictions(self, state: State, seen: Snapshot, operation: Operation | None, *, refused: bool) -> State:
        """Entries that the subject has dropped: legal where blocks were taken, if they were idle."""
        if seen.index is None:
            return state
        missing = [b for b in state.entries if b not in seen.index]
        if not missing:
            return state
        if refused or (operation is not None and state.takings == self.state.takings):
            raise Violation("entries go only by eviction", f"blocks {missing} lost their entries", operation)
        after = state.copy()
        try:
            forget(after, missing)
        except IllegalChoice as illegal:
            raise Violation(illegal.law, illegal.detail, operation, illegal.kind) from illegal
        return after

    def _compare(self, seen: Snapshot, state: State, context: str | None, operation: Operation | None) -> None:
        found: Difference | None = differences(seen, state, self._asked)
        if found:
            law, detail = found
            raise Violation(context or law, f"{law}: {detail}" if context else detail, operation)

    def _follow(self, operation: Operation, answer: Sequence[Outcome], seen: Snapshot, before: State) -> None:
        """Carry out on the shadow and on the meaning what was answered with Ok, then read the contents back."""
        rows = rows_of(operation)
        done = [_Row(row, outcome) for row, outcome in zip(rows, answer, strict=True) if isinstance(outcome, Ok)]
        self.shadow.copy_blocks([pair for row in done for pair in row.outcome.copies])
        for row, outcome in done:
            self.meaning = l0.apply(self.meaning, row)
            self._shadow_row(row, outcome, before)
        self._check_contents(seen, operation, before)

    def _shadow_row(self, row: Operation, outcome: Ok, before: State) -> None:
        wrong: str | None = None
        match row:
            case Admit(request, tokens, namespace):
                self.shadow.admit(request, namespace, tokens)
            case Append(request, tokens):
                self.shadow.append(request, tokens)
            case Truncate(request, length):
                self.shadow.truncate(request, length)
            case Fork(parent, child):
                self.shadow.expected[child] = self.shadow.expected[parent]
            case Free(request):
                self.shadow.forget(request)
            case Commit(request, computed):
                start = before.requests[request].computed
                self.shadow.write(request, before.requests[request].table, start, computed)
            case Preempt(request, "swap"):
                wrong = self.shadow.save(request, before.requests[request].table, outcome.swapped)
            case Resume(request) if before.requests[request].residency == "swap":
                wrong = self.shadow.restore(request, self.state.requests[request].table, outcome.swapped)
            case Permute(seed):
                self.shadow.permute(permutation(seed, self.config.num_blocks))
        if wrong:
            raise Violation("swap saves and restores every block once", wrong, row)

    def _check_contents(self, seen: Snapshot, operation: Operation | None, before: State | None) -> None:
        """Contents through the subject's tables; in full mode also alpha and the specification's own invariants."""
        for request, table in seen.tables.items():
            computed = self._written(request)
            start = 0
            if self.touched_only and before is not None and isinstance(operation, Batch | Append | Commit | Reserve):
                start = max(0, before.requests[request].computed - self.config.block_size)
            position = self.shadow.wrong_position(request, table, start, computed)
            if position is not None:
                raise Violation("contents", f"position {position} of {request!r} holds other KV", operation)
        if self.touched_only and operation is not None:
            return
        names = broken(self.state)
        if before is not None and operation is not None and not isinstance(operation, Permute):
            names += broken_by(before, self.state, requests_of(operation))
        if names:
            raise Violation("invariants", ", ".join(names), operation)
        if alpha(self.state) != self.meaning:
            raise Violation("alpha(L1) = L0", f"{alpha(self.state)} is not {self.meaning}", operation)

    def _written(self, request: RequestId) -> int:
        """Leading positions that are written: the computed ones, unless a hit is ahead of its writer."""
        r, bs = self.state.requests[request], self.config.block_size
        if self.config.publish == "schedule":
            for i, block in enumerate(r.table[: ceil_div(r.computed, bs)]):
                if block != HOLE and len(self.state.contents[block]) < min(bs, r.computed - i * bs):
                    return i * bs
        return r.computed


def _bounded(hits: int) -> Callable[[int, int], int]:
    return lambda must, may: max(must, min(hits, may))
