"""A subject beside the specification, while a trace is drawn: what it decided, and at a violation what it did."""

from collections.abc import Sequence

from pagedkv.cli.drawing import outcome_text
from pagedkv.cli.inputs import BadInput
from pagedkv.conformance.counted import counted
from pagedkv.conformance.differential.driver import Differential
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.failures.replay import not_applicable
from pagedkv.conformance.failures.shrinking import finish
from pagedkv.spec import Misuse, Operation, Outcome, State
from pagedkv.spec.subject import SubjectFactory
from pagedkv.spec.trace import Trace


class Beside:
    """One subject that runs a trace. Raises `BadInput` if the trace does not apply to it."""

    def __init__(self, trace: Trace, factory: SubjectFactory) -> None:
        config = trace.header.config()
        try:
            self.differential = Differential(factory, config)
            why = not_applicable(trace, self.differential.capabilities, config)
        except Misuse as misuse:
            why = f"the subject cannot be made with the pool of the trace: {misuse}"
        except Violation as violation:
            why = f"{violation.law}: {violation.detail}"
        if why:
            raise BadInput(f"the trace does not apply: {why}")
        self.outcomes: tuple[Outcome, ...] | Misuse = ()

    @property
    def policy(self) -> str:
        return self.differential.capabilities.policy

    @property
    def state(self) -> State:
        return self.differential.state

    def step(self, operation: Operation) -> Violation | None:
        """Run one operation on both."""
        try:
            self.outcomes = self.differential.step(operation)
        except Violation as violation:
            return violation
        return None

    def end(self) -> Violation | None:
        """The end of the trace, as `replay` has it: all is compared, what is planned is computed, all is freed."""
        try:
            self.differential.check_all()
            finish(self.differential)
        except Violation as violation:
            return violation
        return None

    def did(self) -> tuple[str, ...]:
        """What the subject answered to the last operation, and what it showed then."""
        answer, seen = self.differential.answer, self.differential.seen
        said: Sequence[Outcome | Misuse] = [answer] if isinstance(answer, Misuse) else answer or []
        lines = [f"answered {outcome_text(outcome)}" for outcome in said] or ["gave no answer that could be used"]
        if seen is None:
            return (*lines, "showed nothing that could be used")
        lines.append(f"shows {counted(seen.available_blocks, 'blocks')} available")
        for request, lengths in seen.lengths.items():
            table = f"table {list(seen.tables[request])}" if request in seen.tables else "no table"
            told = f"length {lengths.length} reserved {lengths.reserved} computed {lengths.computed}"
            lines.append(f"shows {request}  {told}  {table}")
        return tuple(lines)
