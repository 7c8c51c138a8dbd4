"""The pages for newcomers show what happens: their console samples are run, and their tables are complete."""

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
from pagedkv.conformance.plugin import OPTIONS
from pagedkv.conformance.search.slices import SLICES
from pagedkv.spec.subject import Capabilities

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[2] / "docs" / "your_own.md").read_text(encoding="utf-8")
MODULE = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0]
CARELESS = "\n\nclass Careless(ListAllocator):\n    copies_on_write = False\n"
SAMPLES = re.findall(r"^<!-- run -->\n```console\n\$ pytest (.*?)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
TABLE = re.compile(r"^\| `(\w+)` \|.*\|([^|]*)\|$", re.MULTILINE)


@pytest.mark.parametrize(("command", "shown"), SAMPLES, ids=[command for command, _ in SAMPLES])
def test_a_sample_is_what_pytest_prints(pytester: pytest.Pytester, command: str, shown: str) -> None:
    pytester.makepyfile(my_module=MODULE + CARELESS)
    """With fewer programs, which are all that is different."""
    fewer = ("--pagedkv-programs=40", "-p", "no:benchmark", "-p", "no:xdist")
    result = pytester.runpytest_inprocess(*fewer, *shlex.split(command))
    printed = [line.replace(": 40 programs", ": 500 programs") for line in result.outlines]
    lines = [line for line in shown.splitlines() if line]
    assert [line for line in lines if not any(each.startswith(line) for each in printed)] == []


def test_there_are_samples() -> None:
    assert len(SAMPLES) == 2


def test_the_table_of_capabilities_is_complete() -> None:
    needed = {
        field.name: {part.name for part in SLICES.values() if field.name in part.requires}
        for field in fields(Capabilities)
    }
    assert {
        name: {*re.findall(r"\w+", parts)} for name, parts in TABLE.findall(PAGE.partition("## Capabilities")[2])
    } == needed


def test_the_table_of_options_is_complete() -> None:
    given = set(re.findall(r"^\| `--pagedkv-([a-z-]+)=|`--pagedkv-([a-z-]+)=N` \|", PAGE, re.MULTILINE))
    names = {name for pair in given for name in pair if name}
    assert names == {"subject", *(option.name for option in OPTIONS)}
    ini = set(re.findall(r"`pagedkv_(\w+)`", PAGE))
    assert ini == {name.replace("-", "_") for name in names}
