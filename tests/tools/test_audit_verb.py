"""`pagedkv audit`: what it compiles, what it finds, and what it refuses."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton exists for Linux only")

import torch
from pagedkv.cli.main import main
from pagedkv.optimized.audit import audit_table
from pagedkv.optimized.audit.aot import KernelAudit
from pagedkv.optimized.audit.targets import TARGETS
from tests.optimized import address_kernels

ONE = ("audit", "--target", "sm_90", "--only", "copy_blocks")


def test_the_targets_are_those_of_the_audit() -> None:
    from pagedkv.cli import audit  # noqa: PLC0415  # of the same name as a function

    assert tuple(TARGETS) == audit.TARGETS


@pytest.fixture
def no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No table is committed, as where a wheel was installed; where it would be."""
    monkeypatch.setattr(audit_table, "TABLE", tmp_path / "audit.json")
    return tmp_path / "audit.json"


@pytest.mark.usefixtures("no_table")
@pytest.mark.parametrize("kernel", ["copy_blocks", "fork_apply"])
def test_some_kernels_are_held_against_the_table(kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--target", "sm_90", "--only", kernel, "--rows"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0].split()[:3] == ["configuration", "target", "registers"]
    *rows, note, verdict = printed.out.splitlines()[1:]
    assert {line.split()[0] for line in rows} == {kernel}
    assert note == "note: there is no committed table here to compare with"
    assert verdict == f"HOLDS: {len(rows)} compiled"
    assert "compilation" in printed.err


def test_a_difference_to_the_table_is_a_violation(no_table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ONE, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["kernels"]
    table = audit_table.document([]) | {"rows": [{**row, "registers": row["registers"] + 1} for row in rows]}
    audit_table.save(table, no_table)
    assert main([*ONE, "--json", "--table", str(no_table)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["holds"]
    assert len(found["violations"]) == len(rows)
    assert "registers changed though neither" in found["violations"][0]


def test_a_table_is_not_written_of_kernels_that_are_unfit(
    no_table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pagedkv.cli import audit  # noqa: PLC0415  # of the same name as a function

    unfit = KernelAudit("decode", "decode in bytes", "sm_90", 255, 8, 0, 100, 0.1)
    monkeypatch.setattr(audit, "own", lambda _: iter([unfit]))
    assert main(["audit", "--update"]) == 1
    assert "VIOLATED decode in bytes on sm_90: spills 8 bytes a thread" in capsys.readouterr().out
    assert not no_table.exists()


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module `strangers` with examples of a kernel that is not ours."""
    cache, table = torch.zeros(65)[1:], torch.zeros(64, dtype=torch.int32)
    module: Any = ModuleType("strangers")  # the cache begins between two multiples of 16 bytes

    def arguments(target: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        assert target in TARGETS
        return (cache, table, cache, 4096), {"WIDE": target != "sm_80"}

    module.arguments, module.kernel, module.number = arguments, address_kernels.block_kernel, 3
    module.none = lambda target: []
    monkeypatch.setitem(sys.modules, "strangers", module)


@pytest.mark.usefixtures("strangers")
def test_a_strangers_kernel_is_held_against_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    theirs = ("audit", "--kernel", "strangers:kernel", "--example", "strangers:arguments")
    assert main([*theirs, "--target", "sm_90"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["block_kernel", "sm_90"]
    assert main([*theirs, "--target", "sm_80"]) == 1
    last, verdict = capsys.readouterr().out.splitlines()[-2:]
    assert verdict == "VIOLATED: 1 compiled"
    assert last.startswith("VIOLATED block_kernel on sm_80: address_kernels.py:")
    assert last.endswith("of an id and a stride in 32 bits")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--only", "decoder"], "--only 'decoder': there is no such kernel, but copy_blocks, decode"),
        (["--update", "--target", "sm_80"], "--update writes the whole table"),
        (["--kernel", "strangers:kernel"], "--kernel needs --example"),
        (["--example", "strangers"], "--example 'strangers': expected module:function"),
        (["--example", "strangers:number"], "--example 'strangers:number': expected a function, not a int"),
        (["--example", "strangers:nothing"], "--example 'strangers:nothing' cannot be imported"),
        (["--example", "strangers:arguments"], "the example returns a pagedkv.optimized.launch.Launch"),
        (["--example", "strangers:none"], "the example returns a pagedkv.optimized.launch.Launch"),
        (["--example", "strangers:arguments", "--only", "decode"], "it goes with none of --only, --table, --all"),
        ([*ONE[1:], "--table", "absent.json"], "--table absent.json: there is no such file"),
        ([*ONE[1:], "--table", __file__], "--table"),
        (["--kernel", "strangers:kernel", "--example", "builtins:str"], "the example returns (arguments, constants)"),
    ],
)
@pytest.mark.usefixtures("strangers")
def test_misuse_is_told(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *arguments]) == 2
    assert problem in capsys.readouterr().err.splitlines()[-1]
