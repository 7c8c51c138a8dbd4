"""The committed table of numerics: complete, within the bound, of these kernel sources; a GPU's rows are never lost."""

from dataclasses import replace
from pathlib import Path

import pytest

from pagedkv.cli.parts.interpreted import AS_STORED, UPCAST
from pagedkv.cli.parts.numerics_table import COMPILED, DIRECTORY, HOW, ON_A_GPU, Row, load, measured, merged, page, save
from pagedkv.conformance.attention import AttentionReport, ConfigurationReport, Count, Failure
from pagedkv.conformance.attention.cases import SHAPES
from pagedkv.conformance.attention.plan import configurations
from pagedkv.optimized.audit import sources
from pagedkv.optimized.audit.sources import kernel_source_hash, kernel_sources
from pagedkv.spec.attention_subject import AttentionCapabilities

ROOT = Path(__file__).parent.parent.parent
COMMITTED = load(ROOT / DIRECTORY)
EVERYTHING = AttentionCapabilities(
    dtypes=("float32", "float16", "bfloat16"), causal_prefill=True, non_causal=True, window=True, softcap=True,
    alibi=True, sinks=True,
)  # fmt: skip
ANEW = "`make pages` writes docs/kernels/numerics.json and .md anew"

HERE = Row(UPCAST, "float32", ("window",), "decode", 0.5, "now")
OLD = Row(ON_A_GPU, "float16", (), "prefill", 0.25, "then", card="Card A", date="2026-01-02")
OTHER = replace(OLD, card="Card B", rho=0.75)


def test_no_configuration_exceeds_its_bound() -> None:
    assert [row for row in COMMITTED if row.rho is not None and not row.rho <= 1] == []


def test_the_table_is_of_these_kernel_sources() -> None:
    stale = {row.sources for row in COMMITTED if row.how != ON_A_GPU} - {kernel_source_hash()}
    assert stale == set(), ANEW


@pytest.mark.parametrize(("how", "dtypes"), [(UPCAST, EVERYTHING.dtypes), (AS_STORED, ("float16", "bfloat16"))])
def test_every_configuration_was_interpreted(how: str, dtypes: tuple[str, ...]) -> None:
    found = {(row.dtype, row.features, row.shape) for row in COMMITTED if row.how == how and row.rho is not None}
    planned = [each for each in configurations(EVERYTHING, "tiny") if each.dtype in dtypes]
    assert found == {(each.dtype, each.features, shape) for each in planned for shape in SHAPES}, ANEW


def test_what_only_compiles_is_listed() -> None:
    listed = {(row.dtype, row.shape) for row in COMMITTED if row.how == COMPILED and row.count and row.rho is None}
    assert {dtype for dtype, _ in listed} == set(EVERYTHING.dtypes), ANEW
    assert {kernel for _, kernel in listed} >= {"decode", "prefill", "merge"}, ANEW


def test_the_page_is_made_from_the_numbers() -> None:
    text = (ROOT / DIRECTORY / "numerics.md").read_text(encoding="utf-8")
    assert text == page(COMMITTED, kernel_source_hash()), ANEW


def test_a_run_replaces_its_own_rows_and_keeps_those_of_other_cards() -> None:
    again = replace(OLD, rho=0.3, sources="now")
    before = [HERE, OLD, OTHER, Row(COMPILED, "float32", (), "decode", None, "then", count=3)]
    fresh = [replace(HERE, rho=0.4), again]
    assert merged(before, fresh) == [again, OTHER, replace(HERE, rho=0.4)]
    assert merged(before, fresh[:1]) == [OLD, OTHER, replace(HERE, rho=0.4)], "a machine without a GPU"


def test_other_kernel_sources_mark_a_row_as_stale() -> None:
    text = page([OLD, HERE], "now")
    assert "Card A, 2026-01-02, sources `then` (**stale**)" in text
    assert "sources `now`\n" in text
    assert text.count("stale") == 2, "the heading says what it means, and one row is"
    assert page([replace(OLD, sources="now")], "now").count("stale") == 1


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    rows = [OLD, HERE, Row(COMPILED, "float32", (), "decode", None, "now", count=3)]
    save(rows, tmp_path)
    assert load(tmp_path) == rows
    assert load(tmp_path / "nowhere") == []
    assert "| float32 window | 0.500 |" in (tmp_path / "numerics.md").read_text(encoding="utf-8")


def test_a_row_is_made_for_each_class_that_ran_and_no_table_of_a_broken_law() -> None:
    each = ConfigurationReport("float32", (), {"decode": 0.12345}, None, Count(1), Count(1), Count(1), 1)
    report = AttentionReport("mine", 0, "tiny", (each,), {}, (), (), 1, 1.0)
    assert measured(report, UPCAST) == [Row(UPCAST, "float32", (), "decode", 0.123, kernel_source_hash())]
    with pytest.raises(ValueError, match="too far"):
        measured(replace(report, failures=(Failure("bound", "bound", "Case()", "too far"),)), UPCAST)


def test_every_kernel_source_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(sources.__file__).parent.parent
    names = [path.relative_to(package).as_posix() for path in kernel_sources()]
    assert {"kernels/decode.py", "kernels/merge.py", "attention/attend_launches.py"} <= set(names)
    for name, path in zip(names, kernel_sources(), strict=True):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    monkeypatch.setattr(sources, "PACKAGE", tmp_path)
    assert kernel_source_hash() == _hash_of(package, monkeypatch), "line ends do not matter"
    monkeypatch.setattr(sources, "PACKAGE", tmp_path)
    seen = {kernel_source_hash()}
    for name in names:
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes() + b"#")
        seen.add(kernel_source_hash())
    assert len(seen) == len(names) + 1
    assert {len(digest) for digest in seen} == {12}


def _hash_of(package: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sources, "PACKAGE", package)
    return kernel_source_hash()


def test_every_way_to_run_has_its_place() -> None:
    assert {row.how for row in COMMITTED} <= set(HOW)
