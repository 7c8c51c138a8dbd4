"""The bench: a subject under test, with the checks that hold for every launch whatever it computes.

`Broken` says that a law does not hold, and how. The laws of `relations`, `probes`, `numeric` and `writes` are
functions of a bench and a `Case`; they return how many comparisons they made, and raise `Broken` at the first that
fails.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from pagedkv.conformance.attention.cases import Case, cast, contents, storage
from pagedkv.conformance.attention.placement import Placement, place
from pagedkv.spec.bound import Bound
from pagedkv.spec.attention_subject import AttentionSubject, Problem, RoundingModel


class Broken(Exception):
    """A law does not hold; the message says where and how."""


@dataclass(frozen=True)
class Result:
    """What a launch gave: `out` (total_q, num_q_heads, value_dim), `lse` (total_q, num_q_heads) or None."""

    out: Any
    lse: Any


@dataclass
class Bench:
    """A subject, and the results that several laws start from."""

    subject: AttentionSubject
    launches: int = 0
    rhos: dict[str, float] = field(default_factory=dict)
    """The largest ratio to the bound so far, by class of requests."""
    visibility: float | None = None
    """The lowest seen; None before the first."""
    bounds: dict[tuple[Case, RoundingModel], Bound] = field(default_factory=dict)
    """Oracle results that several laws start from."""
    _plain: dict[Case, Result] = field(default_factory=dict)

    def attend(self, problem: Problem) -> Result:
        """Launch. The result must have the stated shape and format, and the caches must be as they were."""
        before = [_bytes(array) for array in (problem.key_cache, problem.value_cache, problem.block_tables)]
        self.launches += 1
        with np.errstate(all="ignore"):  # garbage beside the contents may overflow; the result tells
            out, lse = self.subject.attend(problem)
        after = [_bytes(array) for array in (problem.key_cache, problem.value_cache, problem.block_tables)]
        if before != after:
            raise Broken("attend changed a cache or a block table")
        return _formatted(problem, out, lse, self.subject.capabilities.returns_lse)

    def run(self, case: Case, placement: Placement | None = None) -> Result:
        """Launch a case, placed. The plain placement is launched once and remembered."""
        if placement is not None:
            return self.attend(place(case, contents(case), placement))
        if case not in self._plain:
            self._plain[case] = self.attend(place(case, contents(case)))
        return self._plain[case]


Law: TypeAlias = Callable[[Bench, Case], int]


def require_same_bits(expected: Result, got: Result, what: str) -> None:
    """Both arrays, bit for bit."""
    for name, left, right in (("output", expected.out, got.out), ("lse", expected.lse, got.lse)):
        if left is None or _bytes(left) == _bytes(right):
            continue
        integers = np.dtype(f"u{left.dtype.itemsize}")
        differ = np.ascontiguousarray(left).view(integers) != np.ascontiguousarray(right).view(integers)
        where = tuple(int(i) for i in np.argwhere(differ)[0])
        raise Broken(f"{name} depends on {what}: at {where} {left[where]!r} became {right[where]!r}")


def _bytes(array: Any) -> bytes:
    return bytes(np.ascontiguousarray(array).tobytes())


def _formatted(problem: Problem, out: Any, lse: Any, wants_lse: bool) -> Result:
    shape = (*problem.query.shape[:2], problem.value_cache.shape[3])
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != storage(problem.dtype):
        raise Broken(f"output must be {storage(problem.dtype)} {shape}, got {_kind(out)}")
    if problem.dtype == "bfloat16" and _bytes(cast(out, "bfloat16")) != _bytes(out):
        raise Broken("output holds values that bfloat16 cannot represent")
    if not wants_lse:
        return Result(out, None)
    if not isinstance(lse, np.ndarray) or lse.shape != shape[:2] or lse.dtype != np.float32:
        raise Broken(f"lse must be float32 {shape[:2]}, got {_kind(lse)}")
    return Result(out, lse)


def _kind(value: Any) -> str:
    return f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
