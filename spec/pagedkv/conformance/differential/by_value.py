"""Calls as values: a `BlockManagerSubject` whose operations all come to one method.

It is the way back of `compare.subject_call`, for whatever treats all operations alike: the specification as a subject,
a subject in another process, a recorder. Only `permute` is left out, for a value names a bijection by its seed.
"""

from collections.abc import Sequence

from pagedkv.spec import (
    Admit, Append, Batch, BeginStep, Commit, EndStep, Evict, Fork, Free, Lookup, Operation, Outcome, Pin, Preempt,
    Reserve, ResetPrefixIndex, Resume, Row, Token, Truncate, Unpin,
)  # fmt: skip
from pagedkv.spec.words import Namespace, PreemptMode, RequestId, StepId


class ByValue:
    """The operations of a `BlockManagerSubject`, but for `permute`."""

    def run(self, operation: Operation) -> Sequence[Outcome]:
        """Carry out an operation: one outcome a row. Raises `Misuse`."""
        raise NotImplementedError

    def _one(self, operation: Operation) -> Outcome:
        (outcome,) = self.run(operation)
        return outcome

    def admit(
        self, request: RequestId, tokens: Sequence[Token], namespace: Namespace = "", reserve: int | None = None
    ) -> Outcome:
        return self._one(Admit(request, tuple(tokens), namespace, reserve))

    def reserve(self, request: RequestId, length: int) -> Outcome:
        return self._one(Reserve(request, length))

    def append(self, request: RequestId, tokens: Sequence[Token]) -> Outcome:
        return self._one(Append(request, tuple(tokens)))

    def commit(self, request: RequestId, computed: int) -> Outcome:
        return self._one(Commit(request, computed))

    def fork(self, parent: RequestId, child: RequestId) -> Outcome:
        return self._one(Fork(parent, child))

    def truncate(self, request: RequestId, length: int) -> Outcome:
        return self._one(Truncate(request, length))

    def free(self, request: RequestId) -> Outcome:
        return self._one(Free(request))

    def preempt(self, request: RequestId, mode: PreemptMode = "recompute") -> Outcome:
        return self._one(Preempt(request, mode))

    def resume(self, request: RequestId) -> Outcome:
        return self._one(Resume(request))

    def lookup(self, tokens: Sequence[Token], namespace: Namespace = "") -> Outcome:
        return self._one(Lookup(tuple(tokens), namespace))

    def pin(self, tokens: Sequence[Token], namespace: Namespace = "") -> Outcome:
        return self._one(Pin(tuple(tokens), namespace))

    def unpin(self, tokens: Sequence[Token], namespace: Namespace = "") -> Outcome:
        return self._one(Unpin(tuple(tokens), namespace))

    def evict(self, blocks: int) -> Outcome:
        return self._one(Evict(blocks))

    def reset_prefix_index(self) -> Outcome:
        return self._one(ResetPrefixIndex())

    def begin_step(self, step: StepId) -> Outcome:
        return self._one(BeginStep(step))

    def end_step(self, step: StepId) -> Outcome:
        return self._one(EndStep(step))

    def batch(self, rows: Sequence[Row]) -> Sequence[Outcome]:
        return self.run(Batch(tuple(rows)))
