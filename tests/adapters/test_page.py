"""docs/conformance: the page says what the data says, and every broken law comes with evidence and a verdict."""

import re
from typing import Any

import pytest
from pagedkv.conformance.laws import GROUPS
from pagedkv.spec.trace import load as load_trace

from tests.adapters.page import DOCUMENTS, KINDS, VERDICTS, load, render

SUBJECTS = load()
KEYS = {"subject", "kind", "package", "version", "command", "date", "capabilities", "kept", "broken", "not_run"}
TRIED = {"block manager": {"programs", "operations", "slices"}, "attention": {"cases"}}
PAGE = render(SUBJECTS)
FIRST = set(re.findall(r"^ +\$ .* --subject (\S+)", PAGE, re.MULTILINE))
LAWS = {law.name for members in GROUPS.values() for law in members}


def name(value: Any) -> str:
    return value["subject"] if isinstance(value, dict) else str(value)


each = pytest.mark.parametrize("data", SUBJECTS, ids=name)


def test_the_page_is_made_of_the_data() -> None:
    assert (DOCUMENTS / "conformance.md").read_text(encoding="utf-8") == render(SUBJECTS)


@each
def test_a_subject_has_all_that_the_page_needs(data: dict[str, Any]) -> None:
    assert data["kind"] in KINDS
    assert set(data) >= KEYS | TRIED[data["kind"]]
    assert min(data[name] for name in TRIED[data["kind"]] - {"slices"}) > 0


@each
def test_laws_of_block_managers_have_their_names(data: dict[str, Any]) -> None:
    broken = {entry["law"] for entry in data["broken"]}
    assert not broken & set(data["kept"])
    assert data["kind"] == "attention" or broken | set(data["kept"]) <= LAWS


@each
def test_a_broken_law_has_evidence_and_a_verdict(data: dict[str, Any]) -> None:
    for entry in data["broken"]:
        assert entry["verdict"] in VERDICTS
        assert len(entry["why"]) > 40
        assert entry["source"]
        if "trace" in entry:
            assert load_trace(DOCUMENTS.parent / entry["trace"]).lines
        else:
            assert entry["inputs"]


def test_no_trace_is_left_over() -> None:
    used = {entry["trace"] for data in SUBJECTS for entry in data["broken"] if "trace" in entry}
    found = {path.relative_to(DOCUMENTS.parent).as_posix() for path in (DOCUMENTS / "conformance").rglob("*.jsonl")}
    assert found == used


def test_a_command_of_the_page_can_be_copied() -> None:
    """As it is in the data, or, of subjects that are told together, of the first of them."""
    shown = {line.strip().removeprefix("$ ") for line in PAGE.splitlines() if line.strip().startswith("$ ")}
    for data in SUBJECTS:
        for entry in data["broken"]:
            if "inputs" in entry:
                others = {re.sub(r"(--subject) \S+", rf"\1 {factory}", entry["inputs"]["command"]) for factory in FIRST}
                assert {entry["inputs"]["command"], *others} & shown, entry
    assert '\\"' not in PAGE


def test_what_is_told_is_told_once_and_can_be_found() -> None:
    sections = [section.splitlines() for section in PAGE.split("\n## ")[1:]]
    bodies = ["".join(line for line in lines if line.startswith(("* ", "Kept:"))) for lines in sections]
    assert len(set(bodies)) == len(bodies)
    headings = {
        re.sub(r"[^\w -]", "", line[3:].lower()).replace(" ", "-") for line in PAGE.splitlines() if line[:3] == "## "
    }
    assert set(re.findall(r"\]\(#(.*?)\)", PAGE)) == headings


def test_a_law_says_what_it_means() -> None:
    """By its name, which is a sentence then, or at the end of the page."""
    described = set(re.findall(r"^\| (.*?) \|", PAGE.partition("## What the laws say")[2], re.MULTILINE))
    named = {law for data in SUBJECTS for law in data["kept"]}
    assert {law for law in named if " " not in law or law.count(" ") == law.count(" = ") * 2} <= described
