"""Known failures are strict both ways, and excuse nothing but themselves."""

from dataclasses import replace
from pathlib import Path

import pytest
from pagedkv.conformance.failures.entries import of_subject
from pagedkv.conformance.failures.known import (
    END,
    Excuse,
    KnownFailure,
    changed,
    entry_for,
    load,
    without,
)
from pagedkv.conformance.failures.shrinking import attempt
from pagedkv.conformance.search import exhaustive, fuzz
from pagedkv.conformance.search.slices import SLICES
from pagedkv.spec import Admit, Append, Batch, Commit, Config, Fork, Free, Misuse, Operation, Truncate
from pagedkv.spec.trace import Header, Line, Trace, TraceError, dumps

from tests.conformance.plugin_samples import LosesBoth, LosesWhatIsFreed, Right

CONFIG = Config(num_blocks=4, block_size=2, prefix_cache=False)
COUNTS = "counts add up"
ADMITTED = (Admit("a", (1, 2, 3)), Commit("a", 3))
FREED = (*ADMITTED, Free("a"))
TRUNCATED = (*ADMITTED, Truncate("a", 1))


def pinned(program: tuple[Operation, ...], line: int | None, law: str = COUNTS) -> KnownFailure:
    trace = Trace(Header.of(CONFIG), tuple(map(Line, program)))
    return KnownFailure("t.jsonl", trace, line, law, "nobody has time")


def test_a_file_of_known_failures(tmp_path: Path) -> None:
    for name in ("t.jsonl", "u.jsonl"):
        (tmp_path / name).write_text(dumps(pinned(FREED, 4).trace))
    text = entry_for("t.jsonl", 4, COUNTS) + "\n" + entry_for("u.jsonl", None, COUNTS) + '\nsubject = "mine:One"\n'
    (tmp_path / "known.toml").write_text(text)
    first, second = load(tmp_path / "known.toml")
    assert (first.name, first.line, first.law, first.subject) == ("t.jsonl", 4, COUNTS, None)
    assert (second.line, second.subject) == (None, "mine:One")
    assert of_subject([first, second], "mine:Other") == (first,)
    assert of_subject([first, second], "mine:One") == (first, second)
    with pytest.raises(Misuse, match="one entry for each"):
        of_subject([first, replace(second, name="t.jsonl")], "mine:One")


GOOD = {"trace": '"t.jsonl"', "line": "2", "law": '"x"', "reason": '"y"'}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[known", "a TOML file that can be read"),
        ("[other]", "[[known]] tables only"),
        ("known = 3", "[[known]] tables only"),
        ("known = [3]", "known[1] keys=3"),
        ({"line": None}, "trace, line, law, reason or law, case, reason, and perhaps subject"),
        ({"why": '"z"'}, "trace, line, law, reason or law, case, reason, and perhaps subject"),
        ({"line": "1"}, f'known[1].line=1 is not allowed: expected the line of an operation, >= 2, or "{END}"'),
        ({"line": "true"}, "known[1].line=True"),
        ({"line": "5"}, 'known[1].line=5 is not allowed: expected a line of t.jsonl, which has 4, or "end"'),
        ({"law": "3"}, "known[1].law=3"),
        ({"reason": '" "'}, "a text that is not empty"),
        ({"trace": '"none.jsonl"'}, "known[1].trace='none.jsonl'"),
    ],
)
def test_what_such_a_file_must_not_have(tmp_path: Path, text: str | dict[str, str | None], told: str) -> None:
    (tmp_path / "t.jsonl").write_text(dumps(pinned(FREED, 4).trace))
    if isinstance(text, dict):
        text = "[[known]]\n" + "".join(f"{key} = {value}\n" for key, value in (GOOD | text).items() if value)
    (tmp_path / "known.toml").write_text(text)
    with pytest.raises(Misuse) as caught:
        load(tmp_path / "known.toml")
    assert told in str(caught.value)


def test_a_bad_trace_is_told_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text("{}")
    (tmp_path / "known.toml").write_text(entry_for("t.jsonl", 2, COUNTS))
    with pytest.raises(TraceError, match=r"t\.jsonl:1"):
        load(tmp_path / "known.toml")


def test_a_known_failure_must_fail_as_it_is_pinned() -> None:
    assert changed(pinned(FREED, 4), LosesWhatIsFreed) is None
    assert changed(pinned(ADMITTED, None), LosesWhatIsFreed) is None, "where everything is freed at the end"
    for known, factory, told in (
        (pinned(FREED, 4), Right, "holds now: remove its entry"),
        (pinned(FREED, 3), LosesWhatIsFreed, "now:    line 4: counts add up: 3 blocks available, expected 4"),
        (pinned(FREED, None), LosesWhatIsFreed, "pinned: line end"),
        (pinned(FREED, 4, "another law"), LosesWhatIsFreed, "pinned: line 4: another law"),
        (pinned((*FREED, Batch((Free("a"),))), 4), LosesWhatIsFreed, "does not declare batch. Remove its entry"),
    ):
        assert told in str(changed(known, factory))


def test_another_way_to_break_the_same_law_is_new() -> None:
    """The traces that are pinned may have more in them than they need."""
    both = (*ADMITTED, Fork("a", "b"), Append("b", (1,)))
    freed, truncated = pinned(FREED, 4), pinned((*both, Truncate("a", 1)), 6)
    failure = attempt(LosesWhatIsFreed, CONFIG, (*both, Truncate("a", 1), Free("a")))
    assert failure
    assert Excuse([truncated, freed], LosesWhatIsFreed)(failure) == "t.jsonl"
    assert not Excuse([truncated], LosesWhatIsFreed)(failure), "it fails no more as it is pinned"
    failure = attempt(LosesBoth, CONFIG, (*both, Truncate("a", 1), Free("a")))
    assert failure
    assert Excuse([truncated], LosesBoth)(failure)
    assert not Excuse([freed], LosesBoth)(failure), "it breaks without any free, too"
    assert not Excuse([pinned(TRUNCATED, 4, "another law")], LosesBoth)(failure)


@pytest.mark.parametrize(("program", "other"), [(FREED, Truncate), (TRUNCATED, Free)], ids=["freed", "truncated"])
def test_fuzzing_goes_on_past_what_is_known(program: tuple[Operation, ...], other: type) -> None:
    """And finds the other bug, which breaks the same law."""
    excuse = Excuse([pinned(program, 4)], LosesBoth)
    report = fuzz.run(LosesBoth, seed=1, programs=60, steps=30, excuse=excuse)
    assert report.violation
    assert report.violation.law == COUNTS
    assert isinstance(report.violation.trace.lines[-1].op, other)


def test_fuzzing_ends_when_all_that_breaks_is_known() -> None:
    known = [replace(pinned(program, 4), name=str(program[-1])) for program in (TRUNCATED, FREED)]
    excuse = Excuse(known, LosesBoth)
    report = fuzz.run(LosesBoth, seed=1, programs=60, steps=30, excuse=excuse)
    assert (report.violation, report.programs) == (None, 60)
    assert sum(report.excused.values()) == 60, "every program ends with a free"
    assert len(report.excused) == 2


def test_a_slice_goes_on_past_what_is_known() -> None:
    excuse = Excuse([pinned(FREED, 4)], LosesWhatIsFreed)
    report = exhaustive.run(LosesWhatIsFreed, SLICES["core"], max_states=60, excuse=excuse)
    assert (report.violation, report.states) == (None, 60)
    assert report.excused["t.jsonl"] > 60
    assert exhaustive.run(LosesWhatIsFreed, SLICES["core"], max_states=60).violation


def test_programs_without_a_kind_of_operation() -> None:
    program = (*ADMITTED, Batch((Append("a", (1,)),)), Append("a", (2,)), Batch((Free("a"), Free("b"))))
    assert without(program, "append") == (*ADMITTED, program[-1])
    assert without(program, "truncate") == program
