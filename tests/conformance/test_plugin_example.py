"""The example project under docs/examples, walked through as its README does, with the steps of the GitHub Action.

Each `console` block of the README is a run here, and what it shows is what is printed.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from pagedkv.conformance.plugin.options import OPTIONS
from pagedkv.spec.trace import load

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "allocator"
ACTION = ROOT / ".github" / "actions" / "conformance" / "action.yml"
WORKFLOW = EXAMPLE / ".github" / "workflows" / "test.yml"
INPUT = re.compile(r"\$\{\{ inputs\.([a-z-]+) \}\}")

README = (EXAMPLE / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PYTHON = {"PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("spec", "reference", "optimized", "tools"))}
HERE = {"GITHUB_ACTION_PATH": str(ACTION.parent)}
"""As the runner sets it: the action is in a copy of its whole repository."""
PATH = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}


def action() -> dict[str, Any]:
    text: dict[str, Any] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    return text


def step(name: str, folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run a step of the action as the runner does, with inputs by their names."""
    given = {key: str(value.get("default", "")) for key, value in action()["inputs"].items()}
    given |= {key.replace("_", "-"): value for key, value in inputs.items()}
    (found,) = (part for part in action()["runs"]["steps"] if part.get("id") == name)
    command = {"bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"], "python": ["python"]}[found["shell"]]
    script = folder / "step.txt"
    script.write_text(found["run"], encoding="utf-8")
    told = {key: INPUT.sub(lambda match: given[match[1]], value) for key, value in found["env"].items()}
    return subprocess.run(
        [*command, str(script)], cwd=folder, env=os.environ | PYTHON | PATH | HERE | told,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def runs() -> list[tuple[str, list[str]]]:
    """The commands of the README's console blocks, and the lines that each shows."""
    found: list[tuple[str, list[str]]] = []
    for line in (line for kind, text in BLOCKS if kind == "console" for line in text.splitlines()):
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip():
            found[-1][1].append(line.rstrip())
    return found


def comparable(line: str) -> str:
    """Without what another way to draw programs changes: numbers, and which of two requests it is."""
    return re.sub(r'\d+|"[ab]"', "#", line)


def held(folder: Path, command: str, shown: list[str]) -> subprocess.CompletedProcess[str]:
    """Run what a `$ pytest` line says, by way of the action, and see that it prints what is shown."""
    program, *arguments = shlex.split(command)
    assert program == "pytest"
    slow = "pagedkv[tests.subject:Subject]::exhaustive[core]"
    arguments += ["--pagedkv-programs=30", f"--deselect={slow}", "-pno:benchmark", "-pno:xdist", "-pno:cacheprovider"]
    result = step("hold", folder, pytest_args=shlex.join(arguments))
    printed = [comparable(line) for line in result.stdout.replace("pagedkv-failures/", "failures/").splitlines()]
    unseen = [line for line in shown if not any(each.startswith(comparable(line)) for each in printed)]
    assert unseen == [], result.stdout
    return result


def test_the_example_finds_its_bug_pins_it_and_is_repaired(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", ".*cache", ".hypothesis", "failures"))
    install, *commands = runs()
    assert install == ('pip install -e . "../../..[conformance]"', [])
    assert (EXAMPLE / "../../..").resolve() == ROOT
    find, keep, now_holds, repaired = commands

    assert held(folder, *find).returncode == pytest.ExitCode.TESTS_FAILED
    (trace,) = (folder / "pagedkv-failures").iterdir()
    assert len(load(trace).lines) <= 8

    (folder / "known").mkdir()
    trace.rename(folder / "known" / trace.name)
    (entry,) = (text for kind, text in BLOCKS if kind == "toml")
    (folder / "known" / "known.toml").write_text(entry, encoding="utf-8")
    assert held(folder, *keep).returncode == 0

    (repair,) = (text for kind, text in BLOCKS if kind == "python")
    right, wrong = repair.strip().split("  # was: ")
    module = folder / "pagepool.py"
    text = module.read_text(encoding="utf-8")
    assert text.count(wrong) == 1
    module.write_text(text.replace(wrong, right), encoding="utf-8")
    assert held(folder, *now_holds).returncode == pytest.ExitCode.TESTS_FAILED
    assert held(folder, *repaired).returncode == 0


def test_the_action_hands_its_inputs_on(tmp_path: Path) -> None:
    (tmp_path / "pytest.py").write_text("import json, sys\nprint(json.dumps(sys.argv[1:]))\n", encoding="utf-8")
    told = step(
        "hold", tmp_path, subject="mine:A\nprocess:mine:B\n\ncommand:./mine --fast\n", profile="nightly", programs="7",
        steps="9", seed="0", limit_s="0.5", known_failures="known files/k.toml", traces="recorded",
        pytest_args="-n auto\n-k 'one or two'\ntests\n",
    )  # fmt: skip
    assert json.loads(told.stdout) == [
        "--pagedkv-out=pagedkv-failures", "--pagedkv-subject=mine:A", "--pagedkv-subject=process:mine:B",
        "--pagedkv-subject=command:./mine --fast", "--pagedkv-profile=nightly", "--pagedkv-programs=7",
        "--pagedkv-steps=9", "--pagedkv-seed=0", "--pagedkv-limit-s=0.5", "--pagedkv-known-failures=known files/k.toml",
        "--pagedkv-traces=recorded", "-n", "auto", "-k", "one or two", "tests",
    ], told.stderr  # fmt: skip
    assert step("hold", tmp_path).stdout == '["--pagedkv-out=pagedkv-failures"]\n'
    assert "$(touch" in step("hold", tmp_path, subject="$(touch pwned)", traces="; touch pwned").stdout
    assert not (tmp_path / "pwned").exists()
    (tmp_path / "pytest.py").write_text("raise SystemExit(3)", encoding="utf-8")
    assert step("hold", tmp_path).returncode == 3


def test_the_action_has_the_options_of_the_plugin() -> None:
    """But for the folder of what fails, which it uploads."""
    assert {option.name for option in OPTIONS} - set(action()["inputs"]) == {"out"}


def test_the_action_installs_what_it_is_told_to(tmp_path: Path) -> None:
    told = step("install", tmp_path, install="echo first\necho second && false")
    assert (told.stdout, told.returncode) == ("first\nsecond\n", 1)


def test_the_action_installs_the_kit_that_it_is_part_of(tmp_path: Path) -> None:
    """Whatever is or is not published under that name."""
    (tmp_path / "pip").write_text('#!/bin/sh\nfor argument; do echo "$argument"; done\n', encoding="utf-8")
    (tmp_path / "pip").chmod(0o755)
    default = action()["inputs"]["install"]["default"].replace("pip", "./pip", 1)
    *first, kit = step("install", tmp_path, install=default).stdout.splitlines()
    assert first == ["install", "-e", "."]
    folder, bracket, extra = kit.partition("[")
    project = tomllib.loads((Path(folder) / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "pagedkv"
    assert extra.removesuffix("]") in project["optional-dependencies"], bracket


def test_no_script_of_the_action_has_an_input_pasted_in() -> None:
    steps = action()["runs"]["steps"]
    assert [part["run"] for part in steps if "${{" in part.get("run", "")] == []
    used = {name for part in steps for name in INPUT.findall(str(part))}
    conditions = {name for part in steps for name in re.findall(r"inputs\.([a-z-]+)", part.get("if", ""))}
    assert used | conditions == set(action()["inputs"]), "every input is used, and each that is used is there"


def test_the_workflow_of_the_example_uses_the_action() -> None:
    steps = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["test"]["steps"]
    (used,) = (part for part in steps if "pagedkv" in part["uses"])
    place = used["uses"].partition("@")[0].partition("/pagedkv/")[2]
    assert ROOT / place == ACTION.parent
    assert set(used.get("with", {})) <= set(action()["inputs"])
