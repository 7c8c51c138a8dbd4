"""Known failures of kernels are strict both ways, and excuse nothing but themselves."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pagedkv.cli.main import main
from pagedkv.conformance.attention import Case, Configuration, run
from pagedkv.conformance.attention.cases import case_of
from pagedkv.conformance.attention.held import held
from pagedkv.conformance.attention.pins import Pin, changed, load
from pagedkv.conformance.attention.report import together
from pagedkv.conformance.failures import known
from pagedkv.conformance.failures.entries import entries as read_entries
from pagedkv.conformance.failures.entries import entry_of, of_subject
from pagedkv.spec import Misuse
from pagedkv.spec.trace import save

from tests.conformance.attention_mutants import MUTANTS
from tests.conformance.kernel_samples import (
    Malformed,
    MalformedInTheTail,
    OfOneShape,
    RaisesTwice,
    Right,
    Speechless,
    WithoutWindows,
    Wrong,
    WrongIfLong,
    WrongInWindows,
    WrongTwice,
)
from tests.conformance.plugin_samples import LosesWhatIsFreed
from tests.conformance.test_plugin_known import COUNTS, FREED, pinned

LAW = "lse_bound"
ONE = Pin(LAW, Case(lengths=(1,), num_kv_heads=1, group=1), "issue 1")
LONG = Pin(LAW, Case(lengths=(17,), num_kv_heads=1, group=1), "issue 2")
WINDOW = Pin(LAW, Case(lengths=(1,), num_kv_heads=1, group=1, window=1), "issue 3")
WINDOWS = Configuration("float32", ("window",))


def hold(subject: Any, *pins: Pin, **options: Any) -> Any:
    return run(subject, size="tiny", known=pins, **options)


def test_a_file_of_both_kinds(tmp_path: Path) -> None:
    """Each kind of run reads what is its own."""
    trace = pinned(FREED, 4)
    save(trace.trace, tmp_path / trace.name)
    path = tmp_path / "known.toml"
    entries = [known.entry_for(trace.name, 4, COUNTS), entry_of(law=LAW, case=LONG.case.describe())]
    path.write_text("\n".join([*entries, 'subject = "mine:Kernel"']))
    assert [(each.name, each.law) for each in known.load(path)] == [(trace.name, COUNTS)]
    (pin,) = load(path, "mine:Kernel")
    assert pin == replace(LONG, reason="…", subject="mine:Kernel")
    assert load(path, "process:mine:Kernel") == (pin,), "wherever it runs"
    assert load(path, "mine:Other") == ()
    path.write_text("\n".join([*entries, *entries[1:]]))
    assert load(path, "mine:Kernel") == (replace(pin, subject=None),), "what stands there twice is one"
    with pytest.raises(Misuse, match=r"known_failures='lse_bound Case.* expected one entry for each"):
        of_subject([pin, LONG], "mine:Kernel")
    name = f"{LosesWhatIsFreed.__module__}:{LosesWhatIsFreed.__qualname__}"
    few = ["--programs", "20", "--steps", "20", "--out", str(tmp_path)]
    assert main(["fuzz", "--subject", name, *few, "--known-failures", str(path)]) == 0


GOOD = {"law": '"poison"', "case": '"Case()"', "reason": '"y"'}


def written(folder: Path, changes: dict[str, str | None]) -> Path:
    entry = "".join(f"{key} = {value}\n" for key, value in (GOOD | changes).items() if value)
    path = folder / "known.toml"
    path.write_text(f"[[known]]\n{entry}")
    return path


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"law": "3"}, "known[1].law=3 is not allowed: expected a text that is not empty"),
        ({"reason": '" "'}, "known[1].reason=' '"),
        ({"reason": None}, "trace, line, law, reason or law, case, reason, and perhaps subject"),
        ({"trace": '"t.jsonl"'}, "keys='law, case, reason, trace' is not allowed"),
        ({"line": "3"}, "keys='law, case, reason, line' is not allowed"),
    ],
)
def test_what_no_entry_of_such_a_file_must_have(tmp_path: Path, changes: dict[str, str | None], told: str) -> None:
    """Whoever reads it: a misspelt entry is nobody's, and would excuse nothing."""
    for key in ("trace", "case"):
        with pytest.raises(Misuse) as caught:
            list(read_entries(written(tmp_path, changes), key))
        assert told in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"law": '"gravity"'}, "known[1].law='gravity' is not allowed: expected one of answer, poison, unseen"),
        ({"case": '"Case(9)"'}, "known[1].case='Case(9)' is not allowed: expected Case(name=value, ...)"),
        ({"case": "\"Case(dtype='fp8')\""}, "expected one of float32, float16"),
        ({"case": '"print()"'}, "known[1].case='print()'"),
    ],
)
def test_a_law_and_a_case_that_there_are(tmp_path: Path, changes: dict[str, str | None], told: str) -> None:
    path = written(tmp_path, changes)
    with pytest.raises(Misuse) as caught:
        load(path, "mine:Kernel")
    assert told in str(caught.value)
    assert known.load(path) == ()


def test_an_entry_is_what_it_says_in_toml() -> None:
    case = Case(dtype="float16", lengths=(3,), style="late").describe()
    (entry,) = tomllib.loads(entry_of(law=LAW, case=case))["known"]
    assert entry == {"law": LAW, "case": case, "reason": "…"}


@pytest.mark.parametrize(
    ("pin", "subject", "told"),
    [
        (
            ONE,
            Right,
            "holds now: remove its entry, and keep the case in a test (check_law)\n  it was let be because: iss",
        ),
        (
            replace(ONE, case=Case(softcap=2.0, sinks=True)),
            Wrong,
            "does not apply: the subject does not declare sinks, s",
        ),
        (replace(ONE, case=Case(dtype="float16")), Wrong, "does not declare float16. Remove its entry"),
        (replace(ONE, law="write_path"), Wrong, "does not declare writes"),
        (WINDOW, WithoutWindows, "does not apply: the subject's `fit` takes no such case"),
        (replace(ONE, law="sharing"), Wrong, "does not apply: sharing says nothing of this case"),
        (replace(ONE, law="poison"), Malformed, "fails otherwise now: lse must be an array"),
        (ONE, OfOneShape, "does not apply: the run has no such shape"),
    ],
)
def test_a_pin_that_does_not_fail_as_it_should_is_told(pin: Pin, subject: type, told: str) -> None:
    assert told in str(changed(pin, held(subject())))
    assert changed(ONE, held(Wrong())) is None
    assert changed(replace(ONE, law="answer"), held(Malformed())) is None
    assert "the run has no such shape" in str(changed(ONE, held(Wrong()), [{"head_dim": 8}]))
    report = hold(subject(), pin)
    assert (False, "pin", "known") in {(report.ok, failure.kind, failure.law) for failure in report.failures}
    assert any(line.startswith(f"VIOLATED known (pin): {pin.name} is pinned") for line in report.lines())
    assert not any(each.kind == "pin" for each in hold(subject(), pin, only=[Configuration("float32")]).failures)


def test_what_is_put_down_to_a_pin_is_counted_and_no_failure() -> None:
    """In every configuration, on every case: the law goes on to be held."""
    report = hold(Wrong(), ONE)
    assert report.ok
    assert report.excused == {ONE.name: report.laws[LAW].failed}
    assert report.laws[LAW].failed > 2 * len(report.configurations)
    unpinned = hold(Wrong())
    assert unpinned.laws[LAW].failed == len(report.configurations)
    assert {law: count for law, count in report.laws.items() if law != LAW} == {
        law: count for law, count in unpinned.laws.items() if law != LAW
    }
    told = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert (told["ok"], told["excused"]) == (True, report.excused)
    assert f"put down to the known failure {ONE.name}: {report.laws[LAW].failed}" in report.lines()


@pytest.mark.parametrize(("pin", "others"), [(LONG, {WINDOW.case}), (WINDOW, {LONG.case})], ids=["long", "window"])
def test_another_fault_that_breaks_the_same_law_is_told(pin: Pin, others: set[Case]) -> None:
    """In the configuration that has both, too: there the long case comes first, and what is known stops nothing."""
    report = hold(WrongTwice(), pin)
    assert {replace(case_of(failure.case), seed=0) for failure in report.failures} == others
    (last,) = (failure.case for failure in hold(WrongTwice(), pin, only=[WINDOWS]).failures)
    assert case_of(last) in others
    assert bool(report.excused) == (pin is LONG)
    assert hold(WrongTwice(), LONG, WINDOW).ok


@pytest.mark.parametrize("subject", [Wrong(), WrongTwice(), MalformedInTheTail(), Speechless(), Malformed()])
def test_what_a_report_tells_can_be_pinned(subject: Any) -> None:
    """What is new in it is pinned, over and over, as a user would."""
    pins: dict[Pin, None] = {}
    for _ in range(2):
        told = together(hold(subject, *pins).failures)
        assert all(failure.kind != "pin" for failure in told)
        pins |= {Pin(law, case_of(failure.case), "-"): None for failure, laws in told.items() for law, _ in laws}
    assert pins
    assert hold(subject, *pins).ok


def test_a_pin_of_one_law_excuses_no_other() -> None:
    subject = next(mutant for mutant in MUTANTS if mutant.name == "wrong_kv_head").load()()
    only = [Configuration("float32")]
    failures = hold(subject, only=only).failures
    pins = [Pin(failure.law, case_of(failure.case), "-") for failure in failures]
    assert len({pin.law for pin in pins}) > 1
    left = hold(subject, *pins[1:], only=only).failures
    assert {failure.law for failure in left} == {pins[0].law}
    assert hold(subject, *pins, only=only).ok


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_fault_that_is_everywhere_has_one_smallest_case(dtype: str) -> None:
    """Whatever block size, heads, head size and options it was found with; so one pin is for all of them."""
    subject = next(mutant for mutant in MUTANTS if mutant.name == "lse_base_2").load()()
    pin = replace(ONE, case=replace(ONE.case, dtype=dtype, seed=7))
    assert changed(pin, held(subject)) is None
    only = [Configuration("float32"), Configuration(dtype, ("window", "sinks")), Configuration(dtype, ("non_causal",))]
    report = hold(subject, pin, only=only)
    assert report.ok, "\n".join(report.lines())
    assert report.laws[LAW].failed == report.excused[pin.name] > 3 * len(only)


def test_who_does_not_answer_is_held_to_no_law_pinned_or_not() -> None:
    pin = Pin("answer", Case(lengths=(1,), num_kv_heads=1, group=1), "no device")
    report = hold(Speechless(), pin)
    assert report.ok
    assert (report.excused, report.laws) == ({pin.name: 2}, {})
    assert hold(Right(), pin).failures[0].kind == "pin"


def test_another_exception_is_another_fault() -> None:
    """In a smaller case it is not told in the place of the first one, and a pin does not excuse that for it."""
    wanted = ("answer", "raised IndexError: of long requests (kernel_samples.py:")
    plain = [Configuration("float32")]
    first, *_ = hold(RaisesTwice(), only=plain).failures
    assert (first.law, str(first.detail)[: len(wanted[1])]) == wanted
    assert max(case_of(first.case).lengths) == 17
    other = Pin("answer", Case(lengths=(1,), num_kv_heads=1, group=1), "one head")
    assert changed(other, held(RaisesTwice())) is None
    again, *_ = hold(RaisesTwice(), other, only=plain).failures
    assert (again.law, again.case) == (first.law, first.case)


def test_the_first_failure_that_is_not_known_ends_a_run_that_is_to_end_there() -> None:
    report = hold(WrongTwice(), LONG, stop_at_first=True)
    (failure,) = report.failures
    assert "window=1" in failure.case
    assert hold(WrongIfLong(), LONG, stop_at_first=True).ok
    assert hold(WrongInWindows(), WINDOW, stop_at_first=True).ok
