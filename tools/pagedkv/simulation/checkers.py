"""What the operations of a workload are run on. The engine does not know whether anybody checks its manager."""

from typing import Protocol

from pagedkv.conformance.differential.compare import subject_call
from pagedkv.conformance.differential.driver import Differential
from pagedkv.spec import Batch, Config, Misuse, Operation, Outcome
from pagedkv.spec.subject import BlockManagerSubject, SubjectFactory

CHECK_ALL_EVERY_STEPS = 1_000
"""Engine steps after which the whole state is compared."""


class Checker(Protocol):
    """Runs operations on a block manager, and perhaps holds what it does against the specification."""

    def apply(self, operation: Operation) -> tuple[Outcome, ...]:
        """One outcome a row (one, if it is no batch)."""
        ...

    def available_blocks(self) -> int: ...
    def step_ended(self) -> None:
        """The engine has finished one step."""
        ...

    def finish(self) -> None:
        """No more operations."""
        ...


class Unchecked:
    """The manager alone, as fast as it is."""

    def __init__(self, subject: BlockManagerSubject, config: Config) -> None:
        self.subject, self.config = subject, config

    def apply(self, operation: Operation) -> tuple[Outcome, ...]:
        return subject_call(self.subject, operation, self.config)

    def available_blocks(self) -> int:
        return self.subject.observe(()).available_blocks

    def step_ended(self) -> None:
        pass

    def finish(self) -> None:
        pass


class Checked:
    """The manager beside the specification: what an operation touched at once, everything every 1,000 steps.

    Raises `pagedkv.conformance.differential.violation.Violation` at the first difference; `differential.log` has the
    program.
    """

    def __init__(self, factory: SubjectFactory, config: Config) -> None:
        self.differential = Differential(factory, config, touched_only=True)
        self.steps = self.operations = self.full_checks = 0

    def apply(self, operation: Operation) -> tuple[Outcome, ...]:
        if not isinstance(operation, Batch):
            return self._step(operation)
        if self.differential.capabilities.batch:
            return self._step(operation, len(operation.rows))
        return tuple(outcome for row in operation.rows for outcome in self._step(row))  # which is what a batch means

    def _step(self, operation: Operation, rows: int = 1) -> tuple[Outcome, ...]:
        self.operations += rows
        outcomes = self.differential.step(operation)
        if isinstance(outcomes, Misuse):
            raise outcomes  # the engine never misuses: then it is the engine that is wrong
        return outcomes

    def available_blocks(self) -> int:
        return self.differential.subject.observe(()).available_blocks

    def step_ended(self) -> None:
        self.steps += 1
        if self.steps % CHECK_ALL_EVERY_STEPS == 0:
            self.check_all()

    def check_all(self) -> None:
        """Compare the whole state now."""
        self.differential.check_all()
        self.full_checks += 1

    def finish(self) -> None:
        self.check_all()
        self.differential.finish()
