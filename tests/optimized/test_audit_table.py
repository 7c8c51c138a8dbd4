"""The committed table: what differs is named, and only what can be compared is compared."""

import json
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="the table is of a version of Triton")

from pagedkv.optimized.audit import audit_table, sources
from pagedkv.optimized.audit.aot import KernelAudit
from pagedkv.optimized.audit.audit_page import MARKED, rewrite, tables
from pagedkv.optimized.audit.audit_table import COMPARED, compare, document, load, save
from pagedkv.optimized.audit.sources import audited_source_hash, audited_sources

AUDITS = [
    KernelAudit(
        "decode", f"decode float16 head_dim={dim}", target, 100, 0, 2048, 900, 0.5, 128, 0.25, (128, 128), True,
        ("HMMA.16816.F32",), {"matrix": 4, "integer": 30},
    )
    for dim in (64, 128) for target in ("sm_80", "sm_90")
]  # fmt: skip
OTHERS: dict[str, Any] = {
    "registers": 101, "spill_bytes": 8, "shared_bytes": 4096, "threads": 256, "occupancy": 0.125,
    "kv_load_bits": (64, 128), "matrix": (), "instructions": 901, "inner_loop": {"matrix": 4, "integer": 31},
}  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> dict[str, Any]:
    """A table that went through a file."""
    save(document(AUDITS), tmp_path / "kernels" / "audit.json")
    found = load(tmp_path / "kernels" / "audit.json")
    assert found is not None
    return found


def test_the_same_audit_differs_in_nothing(table: dict[str, Any]) -> None:
    assert compare([replace(each, seconds=9.0) for each in AUDITS], table) == ([], [])


def test_every_figure_is_compared(table: dict[str, Any]) -> None:
    assert set(OTHERS) == set(COMPARED)
    for name, value in OTHERS.items():
        found = compare([replace(AUDITS[0], **{name: value}), *AUDITS[1:]], table).violations
        assert len(found) == 1
        assert f"{AUDITS[0].configuration} on sm_80: {name} changed though neither" in found[0]


def test_a_row_more_or_less_is_named_if_the_audit_is_whole(table: dict[str, Any]) -> None:
    more = replace(AUDITS[0], configuration="decode float16 head_dim=80")
    assert compare([*AUDITS, more], table).violations == ["decode float16 head_dim=80 on sm_80: is not in the table"]
    assert "head_dim=64 on sm_80: is in the table and no longer" in compare(AUDITS[1:], table).violations[0]
    assert compare([*AUDITS[1:], more], table, whole=False) == ([], [])


def test_other_sources_make_the_table_stale(table: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_table, "audited_source_hash", lambda: "another")
    first, *rest = compare([replace(AUDITS[0], registers=101), *AUDITS[1:]], table).violations
    assert "these are another: write the table anew with `pagedkv audit --update`" in first
    assert rest == ["decode float16 head_dim=64 on sm_80: registers changed: 101, was 100"]


def test_the_sources_of_the_table_are_those_of_all_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = sources.PACKAGE
    found = audited_sources()
    assert set(found) > set(sources.kernel_sources())
    assert set(found) > {*(package / "kernels").rglob("*.py"), package / "device" / "launches.py"}
    for path in found:
        copy = tmp_path / path.relative_to(package)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    before = audited_source_hash()
    monkeypatch.setattr(sources, "PACKAGE", tmp_path)
    assert audited_source_hash() == before
    (tmp_path / "kernels" / "pool" / "grow.py").write_bytes(b"")
    assert audited_source_hash() != before


def test_with_another_triton_nothing_is_compared(table: dict[str, Any]) -> None:
    table["triton"] = "3.0.0"
    found = compare([], table)
    assert found.violations == []
    assert f"of Triton 3.0.0, this is {version('triton')}: only the hard rules" in found.notes[0]


def test_without_a_table_it_is_said(tmp_path: Path) -> None:
    assert load(tmp_path / "absent.json") is None
    assert compare(AUDITS, None) == ([], ["there is no committed table here to compare with"])
    (tmp_path / "wrong.json").write_text(json.dumps({"pagedkv_audit": 2}), encoding="utf-8")
    with pytest.raises(ValueError, match="no audit table of format 1"):
        load(tmp_path / "wrong.json")


def test_a_row_is_a_line(table: dict[str, Any], tmp_path: Path) -> None:
    lines = (tmp_path / "kernels" / "audit.json").read_text(encoding="utf-8").splitlines()
    assert sum('"configuration"' in line for line in lines) == len(AUDITS) == len(table["rows"])


def test_the_page_is_made_from_the_table(table: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "audit.md"
    page.write_text("before\n<!-- audit: here -->\nold\n<!-- /audit -->\nafter\n", encoding="utf-8")
    rewrite(page, table)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n<!-- audit: here -->\nTriton")
    assert text.endswith("\n<!-- /audit -->\nafter\n")
    assert "old" not in text
    assert "| decode | sm_90 | 2 | 100 | 0 | 2 | 25 | 128 | HMMA |" in text
    assert "| decode float16 head_dim=64 | 34 | 4 | 30 | HMMA.16816.F32 |" in text
    rewrite(page, table)
    assert page.read_text(encoding="utf-8") == text
    page.write_text("no place", encoding="utf-8")
    with pytest.raises(ValueError, match="0 places for the tables"):
        rewrite(page, table)


def test_the_committed_page_shows_the_committed_table() -> None:
    committed = load()
    assert committed is not None
    shown = MARKED.search(audit_table.TABLE.with_suffix(".md").read_text(encoding="utf-8"))
    assert shown is not None
    assert tables(committed) in shown[0]
