"""What the operations of a workload are run on. The engine does not know whether anybody checks its manager."""

from typing import Protocol

from pagedkv.conformance.compare import subject_call
from pagedkv.conformance.driver import Differential
from pagedkv.reference.baseline import ContiguousReservation
from pagedkv.spec import Admit, Batch, Config, Free, Misuse, Ok, Operation, Outcome, Reason, Refused
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

    Raises `pagedkv.conformance.driver.Violation` at the first difference; `differential.log` has the program.
    """

    def __init__(self, factory: SubjectFactory, config: Config) -> None:
        self.differential = Differential(factory, config, touched_only=True)
        self.steps = self.operations = self.full_checks = 0

    def apply(self, operation: Operation) -> tuple[Outcome, ...]:
        self.operations += len(operation.rows) if isinstance(operation, Batch) else 1
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


class Reservation:
    """Reserving the maximum length for every request, in the same pool: what is compared with paging.

    Room is decided when a request comes and does not depend on its text, so the baseline is asked with one token, and
    a request that would outgrow its room is unservable from the start. `final_length` (tokens) by request.
    """

    def __init__(self, config: Config, max_length: int, final_length: dict[str, int]) -> None:
        self.config, self.final_length = config, final_length
        self.manager = ContiguousReservation(config.num_blocks * config.block_size, max_length)

    def apply(self, operation: Operation) -> tuple[Outcome, ...]:
        match operation:
            case Admit(request):
                fits = self.final_length[str(request)] <= self.manager.max_length
                return (self.manager.admit(request, (0,)) if fits else Refused(Reason.UNSERVABLE),)
            case Batch(rows):
                if isinstance(rows[0], Free):
                    for row in rows:
                        self.manager.free(row.request)
                return (Ok(),) * len(rows)
            case _:
                raise TypeError(f"a reservation never needs {operation}")

    def available_blocks(self) -> int:
        reserved = self.manager.num_active * self.manager.max_length
        return (self.manager.capacity_tokens - reserved) // self.config.block_size

    def step_ended(self) -> None:
        pass

    def finish(self) -> None:
        pass
