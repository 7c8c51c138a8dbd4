"""The bench: a subject under test, with the checks that hold for every launch whatever it computes.

`Broken` says that a law does not hold, and how. The laws of `relations`, `probes`, `numeric` and `writes` are
functions of a bench and a `Case`; they return how many comparisons they made, and raise `Broken` at the first that
fails.

A subject may reuse what it returns, as a captured CUDA graph does: it is copied before the next launch. What it is
given, it may only read, other than the caches of a write.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from pagedkv.conformance.attention.cases import Case, cast, contents, storage
from pagedkv.conformance.attention.placement import Placement, place
from pagedkv.spec.attention_subject import AttentionSubject, Problem, RoundingModel
from pagedkv.spec.bound import Bound


INPUTS: Final = (
    "query", "key_cache", "value_cache", "block_tables", "seq_lens", "query_lens", "alibi_slopes", "sinks",
)  # fmt: skip
"""Arrays of a `Problem`."""


class Broken(Exception):
    """A law does not hold; the message says where and how."""


class Malformed(Broken):
    """The answer of a subject has not the stated form, whatever the law at hand."""


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
        """Launch. The result must have the stated shape and format, and the inputs must be as they were."""
        self.launches += 1
        given = {name: getattr(problem, name) for name in INPUTS}
        answer = _reading("attend", given, lambda: self.subject.attend(problem))
        return _formatted(problem, answer, self.subject.capabilities.returns_lse)

    def write_kv(self, rows: Sequence[Any], caches: Sequence[Any], slots: Any, dtype: str) -> None:
        """`write_kv` of the subject, which changes the caches and nothing else; `rows` and `caches`: keys, values."""
        (key, value), (keys, values) = rows, caches
        given = {"key": key, "value": value, "slot_mapping": slots}
        _reading("write_kv", given, lambda: self.subject.write_kv(key, value, keys, values, slots, dtype))

    def copy_blocks(self, caches: Sequence[Any], pairs: Any, dtype: str) -> None:
        """`copy_blocks` of the subject, which changes the caches and nothing else."""
        _reading("copy_blocks", {"pairs": pairs}, lambda: self.subject.copy_blocks(caches, pairs, dtype))

    def run(self, case: Case, placement: Placement | None = None) -> Result:
        """Launch a case, placed. The plain placement is launched once and remembered."""
        if placement is not None:
            return self.attend(place(case, contents(case), placement))
        if case not in self._plain:
            self._plain[case] = self.attend(place(case, contents(case)))
        return self._plain[case]


Law: TypeAlias = Callable[[Bench, Case], int]


def answered(bench: Bench, case: Case) -> int:
    """A legal launch is answered, in the stated form: without that there is nothing to hold against a law."""
    bench.run(case)
    return 1


def require_same_bits(expected: Result, got: Result, what: str) -> None:
    """Both arrays, bit for bit."""
    for name, left, right in (("output", expected.out, got.out), ("lse", expected.lse, got.lse)):
        if left is None or _bytes(left) == _bytes(right):
            continue
        integers = np.dtype(f"u{left.dtype.itemsize}")
        differ = np.ascontiguousarray(left).view(integers) != np.ascontiguousarray(right).view(integers)
        where = tuple(int(i) for i in np.argwhere(differ)[0])
        raise Broken(f"{name} depends on {what}: at {where} {left[where]!r} became {right[where]!r}")


def whole(array: Any) -> Any:
    """The array that one is a part of, such as a cache with the padding of its rows."""
    return array.base if isinstance(array.base, np.ndarray) else array


def _bytes(array: Any) -> bytes:
    return bytes(np.ascontiguousarray(array).tobytes())


def _reading(what: str, given: Mapping[str, Any], call: Callable[[], Any]) -> Any:
    """What the call returns; it may not change what is `given`."""
    before = {name: _bytes(whole(array)) for name, array in given.items() if array is not None}
    with np.errstate(all="ignore"):  # garbage beside the contents may overflow; the result tells
        answer = call()
    changed = [name for name, was in before.items() if _bytes(whole(given[name])) != was]
    if changed:
        raise Broken(f"{what} changed its input {', '.join(changed)}")
    return answer


def _formatted(problem: Problem, answer: Any, wants_lse: bool) -> Result:
    """Copies: the subject may write its next result into the same arrays."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise Malformed(f"attend must return (output, lse or None), got {_kind(answer)}")
    out, lse = answer
    shape = (*problem.query.shape[:2], problem.value_cache.shape[3])
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != storage(problem.dtype):
        raise Malformed(f"output must be an array {storage(problem.dtype)} {shape}, got {_kind(out)}")
    if problem.dtype == "bfloat16" and _bytes(cast(out, "bfloat16")) != _bytes(out):
        raise Malformed("output holds values that bfloat16 cannot represent")
    if not wants_lse:
        return Result(_copied(out), None)
    if not isinstance(lse, np.ndarray) or lse.shape != shape[:2] or lse.dtype != np.float32:
        raise Malformed(f"lse must be an array float32 {shape[:2]}, for returns_lse is declared; got {_kind(lse)}")
    return Result(_copied(out), _copied(lse))


def _copied(array: Any) -> Any:
    """Of a masked array, which compares as nobody expects, what it holds."""
    return np.array(array, subok=False)


def _kind(value: Any) -> str:
    return f"an array {value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
