"""docs/conformance: the page says what the data says, and every broken law comes with evidence and a verdict."""

from typing import Any

import pytest
from pagedkv.conformance.laws import GROUPS
from pagedkv.spec.trace import load as load_trace

from tests.adapters.page import DOCUMENTS, KINDS, VERDICTS, load, render

SUBJECTS = load()
KEYS = {"subject", "kind", "package", "version", "command", "date", "capabilities", "kept", "broken", "not_run"}
TRIED = {"block manager": {"programs", "operations", "slices"}, "attention": {"cases"}}
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
