"""`pagedkv verify`: what makes it hold, what is violated, what is not run, and the report."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from pagedkv.cli import exhaust as exhaust_verb
from pagedkv.cli.main import VERBS, main
from pagedkv.cli.parts import ORDER, PARTS, Options, combine, run_part
from pagedkv.cli.parts.attention_report import report_lines
from pagedkv.cli.report import WIDTH, Section, columns, merged, render
from pagedkv.optimized.audit.access_log import AccessLog, Extent, LaunchAccess, ProgramAccess
from pagedkv.conformance.attention import AttentionReport, ConfigurationReport, Count, Failure
from pagedkv.spec.trace import load

from tests.tools.test_command import BROKEN


QUICK = ["verify", "--quick", "--only", "workload"]


def test_verify_reports_the_workload_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--json"]) == 0
    printed = capfd.readouterr()
    document = json.loads(printed.out)
    assert set(document) == {
        "pagedkv_verify", "subject", "seed", "quick", "machine", "holds", "elapsed_s", "sections",
    }  # fmt: skip
    (section,) = document["sections"]
    assert (section["name"], section["status"]) == ("workload", "holds")
    assert set(section["data"]) == {
        "source", "service_model", "num_blocks", "block_size", "checks", "measures", "reservations",
    }  # fmt: skip
    measures = section["data"]["measures"]
    assert measures["finished"] == measures["requests"] > 0
    assert len(measures["series"]) == 60
    assert [r["max_length"] for r in section["data"]["reservations"]][:2] == [2048, 4096]
    assert "workload" in printed.err, "progress is on stderr"
    assert all(len(line) <= WIDTH for line in section["lines"]), "fits a screen"


def test_the_device_pool_is_a_part_and_a_subject(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--quick", "--only", "device", "--no-progress", "--json"]) == 0
    (section,) = json.loads(capfd.readouterr().out)["sections"]
    assert [found["slice"] for found in section["data"]["slices"]] == ["core", "rewind", "siblings", "rolling"]
    assert section["data"]["programs"]["operations"]["batch"]["refused"] > 0, "batches are refused in part"
    assert main([*QUICK, "--no-progress", "--subject", "device"]) == 2, "nothing was held"
    assert "the subject does not declare preempt" in capfd.readouterr().out


def test_verify_finds_a_violation(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--no-progress", "--subject", BROKEN, "--out", str(tmp_path)]) == 1
    printed = capfd.readouterr()
    assert printed.err == ""
    assert "workload: violated" in printed.out
    assert printed.out.rstrip().splitlines()[-1].startswith("VIOLATED")
    assert load(tmp_path / "workload.jsonl").header.config().num_blocks == 8_192


def test_a_part_without_its_package_is_named_and_is_no_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name="torch")

    monkeypatch.setattr("pagedkv.cli.parts.importlib.import_module", without)
    for part, extra in (("attention", "torch"), ("interpreted", "gpu"), ("kernels", "gpu")):
        section = run_part(part, Options(quiet=True))
        assert section.status == "not run"
        assert section.lines == (f'{part} not run: torch is not installed: pip install "pagedkv[{extra}]"',)


def test_a_part_that_crashes_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(name: str) -> object:
        raise KeyError("lost")

    monkeypatch.setattr("pagedkv.cli.parts.importlib.import_module", crash)
    assert run_part("programs", Options(quiet=True)).status == "violated"


@pytest.mark.parametrize(("strict", "code"), [([], 0), (["--strict"], 1)])
def test_not_run_counts_only_when_strict(
    strict: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = Section("kernels compiled", "not run", ("kernels not run: ...",))
    held = Section("random programs", "holds")
    monkeypatch.setattr("pagedkv.cli.verify.run_parts", lambda names, options: [held, absent])
    assert main(["verify", *strict]) == code
    assert "(not run: kernels compiled)" in capsys.readouterr().out


def test_a_run_that_held_nothing_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Section("kernels compiled", "not run", ("kernels not run: ...",))
    monkeypatch.setattr("pagedkv.cli.verify.run_parts", lambda names, options: [absent])
    assert main(["verify"]) == 2


def test_every_part_has_a_place_in_the_report() -> None:
    assert {part.section for part in PARTS.values()} == set(ORDER)
    sections = combine([Section(part.section, "holds") for part in PARTS.values()])
    assert [section.name for section in sections] == list(ORDER)


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        (("holds", "holds"), "holds"),
        (("not run", "holds"), "holds"),
        (("not run", "not run"), "not run"),
        (("not run", "violated"), "violated"),
        (("holds", "violated"), "violated"),
    ],
)
def test_a_section_is_what_its_parts_are(parts: tuple[str, str], whole: str) -> None:
    made = [Section("s", status, (status,)) for status in parts]  # type: ignore[arg-type]  # the literals of the table
    assert merged("s", made).status == whole
    assert merged("s", made).lines == parts


def test_columns_line_up() -> None:
    lines = columns([("name", "count"), ("a", 1_000), ("bcd", 20)])
    assert lines == ["name  count", "a     1,000", "bcd      20"]


def test_a_section_is_a_rule_and_its_lines() -> None:
    text = render([Section("workload", "holds", ("one", "two"), {}, 1.25)])
    assert text.splitlines()[1:] == ["   one", "   two"]


def test_every_verb_says_what_it_is_for() -> None:
    assert all(module.HELP and module.__doc__ for module in VERBS.values())
    assert exhaust_verb.HELP in {module.HELP for module in VERBS.values()}


def test_kernels_are_summed_up_by_target() -> None:
    kernels = pytest.importorskip("pagedkv.cli.parts.kernels", reason="the audit needs Triton", exc_type=ImportError)
    audit = importlib.import_module("pagedkv.optimized.audit.aot").KernelAudit
    fit = [audit("decode", "float16", target, 100, 0, 1_024, 500, 0.1) for target in ("sm_80", "sm_90")]
    text = kernels.report_lines([*fit, audit("decode", "float32", "sm_90", 255, 64, 2_048, 700, 0.1)])
    assert text[0].endswith("on sm_80/sm_90:")
    assert text[2].split() == ["decode", "2", "100/255", "0/64", "1024/2048", "500/700"]
    assert [line for line in text if "VIOLATED" in line] == [
        "VIOLATED decode (float32) on sm_90: spills 64 bytes a thread"
    ]


def test_attention_is_told_by_configuration() -> None:
    report = AttentionReport(
        "mine", 0, "tiny",
        (
            ConfigurationReport("float32", (), {"decode": 0.5, "prefill": 0.25}, 0.9, Count(3), Count(4), Count(5), 7),
            ConfigurationReport("float32", ("window",), {"decode": 1.5}, 0.8, Count(1), Count(1), Count(1, 1), 3),
            ConfigurationReport("float16", ("alibi", "sinks"), {}, None, Count(1), Count(0), Count(1), 2),
        ),
        {"bound": Count(7, 1)}, (Failure("bound", "bound", "Case()", "too far"),), ("sinks",), 12, 1.0,
    )  # fmt: skip
    text = report_lines(report, "interpreted, upcast")
    assert text[0] == "mine: interpreted, upcast, 12 launches, tiny shapes, 1.0 s"
    assert text[2].split() == ["float32", "plain", "0.500", "-", "0.250", "3", "4", "5", "90%"]
    assert text[3].split() == ["float32", "window", "1.500", "-", "-", "1", "1", "1", "80%"]
    assert text[4].split() == ["float16", "alibi+sinks", "-", "-", "-", "1", "0", "1", "-"]
    assert "VIOLATED bound (bound): too far" in text
    assert text[-1].endswith("sinks")


@pytest.mark.parametrize(("second", "status"), [("load", "violated"), ("none", "holds")])
def test_programs_that_touch_what_another_writes_are_a_violation(second: str, status: str) -> None:
    part = pytest.importorskip("pagedkv.cli.parts.interpreted", reason="its subject needs torch", exc_type=ImportError)
    spans = np.array([[8, 16]], np.uint64)
    programs = [ProgramAccess((i, 0, 0)) for i in range(2)]
    programs[0].add("store", spans)
    if second == "load":
        programs[1].add("load", spans)
    section = part.order_section(AccessLog([LaunchAccess("decode", (Extent("out", 0, 64),), programs)]))
    assert section.status == status
    assert section.lines[0].startswith("order: 2 programs of 1 launch shuffled")
    assert any("store by (0, 0, 0) and load by (1, 0, 0) of byte 8 of out" in line for line in section.lines) == (
        status == "violated"
    )
