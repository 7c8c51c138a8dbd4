"""What the suite makes of subjects that fail in odd ways: told as what it is, and never lost."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
from pagedkv.conformance.differential import in_time
from pagedkv.conformance.differential.driver import Differential
from pagedkv.conformance.differential.violation import COPIED, OBSERVED, RAISES, Violation
from pagedkv.conformance.failures import shrinking
from pagedkv.conformance.failures.known import entry_for
from pagedkv.conformance.failures.shrinking import attempt
from pagedkv.conformance.search import exhaustive, fuzz
from pagedkv.conformance.search.exhaustive import slices_for, unvisited
from pagedkv.conformance.suite import Broken, NotApplicable, Options, checks, run_of
from pagedkv.reference import BlockManager
from pagedkv.spec import Admit, Append, Commit, Config, Fork, Misuse, Ok, Outcome, RequestId
from pagedkv.spec.subject import Capabilities, Snapshot, SubjectFactory
from pagedkv.spec.trace import dumps

CONFIG = Config(num_blocks=4, block_size=2, prefix_cache=False)
LITTLE = Options(programs=40, steps=30, seed=1)


def report_of(factory: SubjectFactory, check: str, out: Path) -> str:
    """What the check says, which fails."""
    run = run_of(factory, Options(programs=40, steps=30, seed=1, out=out))
    (found,) = (each for each in checks(run) if each.name == check)
    with pytest.raises(Broken) as broken:
        found.run()
    return str(broken.value)


class Flaky(BlockManager):
    """Loses a block at the 16th `free` there ever was, the 32nd, the 64th and so on, whatever came before."""

    freed = 0

    def free(self, request: RequestId) -> Outcome:
        Flaky.freed += 1
        return Ok() if Flaky.freed.bit_count() == 1 and Flaky.freed >= 16 else super().free(request)


@pytest.mark.parametrize("check", ["programs", "state_machine"])
def test_what_does_not_fail_every_time_is_reported_as_that(
    check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Flaky, "freed", 0)
    told = report_of(Flaky, check, tmp_path)
    assert "the subject does not do the same every time" in told
    assert "[[known]]" not in told, "it cannot be pinned"
    assert "everything is computed and freed" not in told


class Shallow(BlockManager):
    """Its copies share their tables."""

    def copy(self) -> "Shallow":
        return copy.copy(self)


def test_a_copy_that_is_none_is_told_as_such() -> None:
    report = exhaustive.run(Shallow, slices_for(Capabilities(fork=True))[0])
    assert report.violation is not None
    assert report.violation.law == COPIED
    assert "not independent" in report.violation.detail


class Uncopied(BlockManager):
    """Has a copy that fails."""

    def copy(self) -> "Uncopied":
        raise RuntimeError("no")


class FlakyCopied(Flaky):
    """Its copies are independent."""

    def copy(self) -> "FlakyCopied":
        return copy.deepcopy(self)


def test_a_copy_is_accused_of_what_it_does_only() -> None:
    core = slices_for(Capabilities(fork=True))[0]
    failed = exhaustive.run(Uncopied, core).violation
    assert failed is not None
    assert failed.detail.startswith("copy raised RuntimeError('no')")
    flaky = exhaustive.run(FlakyCopied, core).violation
    assert flaky is not None
    assert flaky.law != COPIED


class NoWindowIndex(BlockManager):
    """Has no window together with an index."""

    def __init__(self, config: Config) -> None:
        if config.sliding_window and config.prefix_cache:
            raise Misuse("sliding_window", config.sliding_window, "None, with a prefix cache")
        super().__init__(config)


def test_a_slice_whose_pool_a_subject_does_not_have_is_no_failure() -> None:
    found = {check.name: check for check in checks(run_of(NoWindowIndex, LITTLE))}
    with pytest.raises(NotApplicable, match="pool of the slice sliding_hits"):
        found["exhaustive[sliding_hits]"].run()


def test_what_is_pinned_excuses_the_sample_too(tmp_path: Path) -> None:
    class LooksAway(BlockManager):
        def lookup(self, tokens: Any, namespace: Any = "") -> Outcome:
            super().lookup(tokens, namespace)
            return Ok()

    failure = fuzz.run(LooksAway, seed=1, programs=200).violation
    assert failure is not None
    (tmp_path / "pinned.jsonl").write_text(dumps(failure.trace), encoding="utf-8")
    entry = entry_for("pinned.jsonl", len(failure.trace.lines) + 1, failure.law)
    (tmp_path / "known.toml").write_text(entry, encoding="utf-8")
    options = Options(programs=40, steps=30, seed=1, out=tmp_path, known_failures=tmp_path / "known.toml")
    for check in checks(run_of(LooksAway, options)):
        if check.name in ("sample_trace", "corpus", "programs"):
            assert check.run()


class Hanging(BlockManager):
    """Never ends an append."""

    def append(self, request: RequestId, tokens: Any) -> Outcome:
        while True:
            pass


@pytest.mark.parametrize("check", ["programs", "state_machine", "exhaustive[core]"])
def test_a_hang_ends_every_check(check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_time, "LIMIT_S", 0.1)
    monkeypatch.setattr(shrinking, "LIMIT_OF_AN_ATTEMPT_S", 0.02)
    assert report_of(Hanging, check, tmp_path).startswith(f"BROKEN: {in_time.IN_TIME}")


class Unmakeable(BlockManager):
    """Fails in the making of larger pools."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if config.num_blocks > 3:
            raise KeyError("no room")


@pytest.mark.parametrize("check", ["programs", "state_machine", "exhaustive[core]"])
def test_a_subject_that_cannot_be_made_is_reported_with_its_pool(check: str, tmp_path: Path) -> None:
    told = report_of(Unmakeable, check, tmp_path)
    assert told.startswith(f"BROKEN: {RAISES}\n  making it raised KeyError('no room') (test_suite.py:")
    assert '"num_blocks": 4' in told, "the smallest such pool"


class OfTwo(BlockManager):
    """Has blocks of a power of two only, and says so."""

    def __init__(self, config: Config) -> None:
        if config.block_size & (config.block_size - 1):
            raise Misuse("block_size", config.block_size, "a power of two")
        super().__init__(config)


class OfNone(BlockManager):
    """Has no pool but that with which it is looked at."""

    def __init__(self, config: Config) -> None:
        if config != Config(num_blocks=2, block_size=2):
            raise Misuse("num_blocks", config.num_blocks, "2")
        super().__init__(config)


def test_a_pool_that_a_subject_does_not_have_is_passed_over_and_counted() -> None:
    report = fuzz.run(OfTwo, seed=1, programs=60, steps=20)
    assert report.violation is None
    assert set(report.not_made) == {"block_size"}
    assert report.programs == 60 - report.not_made["block_size"] > 0
    with pytest.raises(Misuse, match="num_blocks"):
        fuzz.run(OfNone, seed=1, programs=5, steps=20)


class Declaring(BlockManager):
    """Declares `fork`, and has none."""

    capabilities = Capabilities(fork=True)
    fork = property()


def test_what_is_declared_has_to_be_there() -> None:
    with pytest.raises(Misuse, match="has no fork, but declares fork"):
        run_of(Declaring)


@pytest.mark.parametrize(
    "wrong",
    [{"evict": True}, {"sink_tokens": True}, {"policy": "LRU"}, {"publish": True}, {"fork": 1}, {"batch": None}],
)
def test_capabilities_that_mean_nothing_are_misuse(wrong: dict[str, Any]) -> None:
    with pytest.raises(Misuse, match=next(iter(wrong))):
        Capabilities(**wrong)


def test_a_broken_law_survives_being_pickled() -> None:
    """As where tests run in several processes."""
    violation = Violation("law", "detail", Admit("a", (1,)), "KeyError")
    again = pickle.loads(pickle.dumps(violation))
    assert vars(again) == vars(violation)
    assert str(again) == str(violation)
    misuse = pickle.loads(pickle.dumps(Misuse("tokens", (), "a token")))
    assert str(misuse) == str(Misuse("tokens", (), "a token"))


def test_a_subject_names_its_arguments_as_it_likes(tmp_path: Path) -> None:
    class Sequences(BlockManager):
        def free(self, request: RequestId) -> Outcome:
            try:
                return super().free(request)
            except Misuse as misuse:
                raise Misuse("sequence", request, "a known one") from misuse

    for check in checks(run_of(Sequences, LITTLE)):
        if check.name in ("sample_trace", "corpus"):
            check.run()


@pytest.mark.parametrize("part", ["tables", "lengths", "references", "index"])
@pytest.mark.parametrize("value", [3, [1], {"a": None}])
def test_a_snapshot_of_another_form_cannot_be_observed(part: str, value: object) -> None:
    class Odd(BlockManager):
        def observe(self, requests: Any = None) -> Snapshot:
            seen = super().observe(requests)
            return Snapshot(**{**vars(seen), part: value})

    with pytest.raises(Violation) as violation:
        Differential(Odd, Config(num_blocks=4, block_size=2)).step(Admit("a", (1, 2)))
    assert violation.value.law == OBSERVED


def test_a_forgotten_copy_on_write_is_told_in_its_words() -> None:
    class Careless(BlockManager):
        def append(self, request: RequestId, tokens: Any) -> Outcome:
            entry = self.requests[request]
            start = len(entry.tokens)
            entry.tokens += tokens
            entry.reserved = start + 1
            block = entry.table[start // 2]
            return Ok(slots=(block * 2 + start % 2,))

    failure = attempt(Careless, CONFIG, (Admit("a", (1,)), Commit("a", 1), Fork("a", "b"), Append("b", (2,))))
    assert failure is not None
    assert "shared with 'a' and about to be written: expected a copy (copy-on-write)" in failure.violation.detail


def test_what_no_slice_is_about_is_told() -> None:
    can = Capabilities(fork=True, lookup=True, batch=True)
    assert unvisited(can, slices_for(can)) == ["lookup"]
    assert [part.name for part in slices_for(Capabilities())] == ["plain"]
    assert [part.name for part in slices_for(Capabilities(truncate=True))] == ["plain", "truncate"]


class InAClass:
    """A subject that a name leads to, and one that none leads to."""

    class Losing(BlockManager):
        def free(self, request: RequestId) -> Outcome:
            super().free(request)
            return self.admit("lost", (1,))


def test_the_command_that_repeats_a_failure_names_what_can_be_found(tmp_path: Path) -> None:
    told = report_of(InAClass.Losing, "programs", tmp_path)
    assert f"--subject {__name__}:InAClass.Losing" in told

    class Local(InAClass.Losing):
        pass

    told = report_of(Local, "programs", tmp_path)
    assert "--subject" not in told
    assert "replay(load(" in told
