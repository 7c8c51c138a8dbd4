"""What a pinned failure excuses, and what it does not."""

import tomllib
from typing import Any

import pytest
from pagedkv.conformance.failures.known import END, Excuse, KnownFailure, entry_for
from pagedkv.conformance.failures.shrinking import attempt, trace_of
from pagedkv.conformance.laws import GROUPS
from pagedkv.conformance.search import fuzz
from pagedkv.reference import BlockManager
from pagedkv.spec import Admit, Append, Config, Operation, Outcome, Reason, Refused, RequestId
from pagedkv.spec.trace_records import Trace

CONFIG = Config(num_blocks=4, block_size=2, prefix_cache=False)
LAWS = [law.name for laws in GROUPS.values() for law in laws]


class RefusesTwoWays(BlockManager):
    """Prompts of three tokens, and appends to a text of four, are refused for nothing: two faults, one law."""

    def admit(self, request: RequestId, tokens: Any, namespace: Any = "", reserve: int | None = None) -> Outcome:
        refused = len(tokens) == 3
        return Refused(Reason.CAPACITY) if refused else super().admit(request, tokens, namespace, reserve)

    def append(self, request: RequestId, tokens: Any) -> Outcome:
        full = request in self.requests and len(self.requests[request].tokens) == 4
        return Refused(Reason.CAPACITY) if full else super().append(request, tokens)


def pinned(*program: Operation) -> KnownFailure:
    failure = attempt(RefusesTwoWays, CONFIG, program)
    assert failure is not None
    trace: Trace = trace_of(failure)
    return KnownFailure("pinned.jsonl", trace, len(trace.lines) + 1, failure.violation.law, "known")


def test_a_pin_of_admissions_only_excuses_no_append() -> None:
    """It needs no other kind of operation, so it is told by where it fails."""
    excuse = Excuse([pinned(Admit("a", (1, 2, 3)))], RefusesTwoWays)
    report = fuzz.run(RefusesTwoWays, seed=1, programs=300, steps=40, excuse=excuse)
    assert report.violation is not None
    assert isinstance(report.violation.failure.program[-1], Append)
    excuse = Excuse([pinned(Admit("a", (1, 2, 3, 4)), Append("a", (5,)))], RefusesTwoWays)
    report = fuzz.run(RefusesTwoWays, seed=1, programs=300, steps=40, excuse=excuse)
    assert report.violation is not None
    assert isinstance(report.violation.failure.program[-1], Admit)


@pytest.mark.parametrize("law", [*LAWS, "the trace's expectation", 'a "law" \\ of one\'s own'])
def test_an_entry_is_what_it_says_in_toml(law: str) -> None:
    for line in (7, None):
        (entry,) = tomllib.loads(entry_for('a "trace".jsonl', line, law))["known"]
        assert entry == {"trace": 'a "trace".jsonl', "line": line or END, "law": law, "reason": "…"}
