"""The pages for newcomers show what happens: their console samples are run, and their tables are complete."""

import re
import shlex
from argparse import ArgumentParser
from dataclasses import fields
from pathlib import Path

import pytest
from pagedkv.cli.main import VERBS, main
from pagedkv.conformance.plugin.options import KERNEL_SIZE, OPTIONS
from pagedkv.conformance.search.slices import SLICES
from pagedkv.spec.subject import Capabilities

pytest_plugins = ["pytester"]

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "your_own.md").read_text(encoding="utf-8")
MODULE = "\n\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[:2])
"""Without fork, and with it."""
CARELESS = "\n\nclass Careless(ListAllocator):\n    copies_on_write = False\n"
SAMPLE = re.compile(r"^<!-- run -->\n```console\n\$ pytest (.*?)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SAMPLES = SAMPLE.findall(PAGE)
KERNELS = (DOCS / "your_own_kernel.md").read_text(encoding="utf-8")
KERNEL = re.findall(r"^```python\n(.*?)^```$", KERNELS, re.DOTALL | re.MULTILINE)[0]
WHOLE_BLOCKS = re.sub(
    "^(>>>|[.]{3}) ", "", re.findall(r"^(>>> class .*?)^>>> ", KERNELS, re.DOTALL | re.M)[0], flags=re.M
)
TABLE = re.compile(r"^\| `(\w+)` \|.*\|([^|]*)\|$", re.MULTILINE)


def comparable(line: str) -> str:
    """Without what fewer programs change."""
    return re.sub(r"[\d,]+ (programs|operations)\b", r"# \1", line)


@pytest.mark.parametrize(("command", "shown"), SAMPLES, ids=[command for command, _ in SAMPLES])
def test_a_sample_is_what_pytest_prints(pytester: pytest.Pytester, command: str, shown: str) -> None:
    """With fewer programs, which are all that is different."""
    pytester.makepyfile(my_module=MODULE + CARELESS)
    fewer = ("--pagedkv-programs=40", "-p", "no:benchmark", "-p", "no:xdist")
    result = pytester.runpytest_inprocess(*fewer, *shlex.split(command))
    printed = {comparable(line) for line in result.outlines}
    assert [line for line in shown.splitlines() if line and comparable(line) not in printed] == []


@pytest.mark.parametrize(("command", "shown"), SAMPLE.findall(KERNELS))
def test_a_sample_of_kernels_is_what_pytest_prints(pytester: pytest.Pytester, command: str, shown: str) -> None:
    """And what the page pins is all that is broken."""
    pytester.makepyfile(my_kernel=f"{KERNEL}\n\n{WHOLE_BLOCKS}")
    result = pytester.runpytest_inprocess("-p", "no:benchmark", "-p", "no:xdist", *shlex.split(command))
    assert [line for line in shown.splitlines() if line and line not in result.outlines] == []
    (known,) = re.findall(r"^```toml\n(.*?)^```$", KERNELS, re.DOTALL | re.MULTILINE)
    (pytester.path / "known.toml").write_text(known)
    chosen = ("--pagedkv-known-failures=known.toml", "--pagedkv-seed=7", "-p", "no:benchmark")
    pytester.runpytest_inprocess("--pagedkv-kernel=my_kernel:WholeBlocks", *chosen).assert_outcomes(passed=4)


def test_there_are_samples() -> None:
    assert (len(SAMPLES), len(SAMPLE.findall(KERNELS))) == (2, 2)


def test_the_options_of_kernels_are_in_their_table() -> None:
    told = re.findall(r"^\| `--pagedkv-([a-z-]+)=[A-Z]+` \| `pagedkv_(\w+)` \|", KERNELS, re.MULTILINE)
    assert all(option.replace("-", "_") == ini for option, ini in told)
    of_kernels = {"known-failures", "seed", "limit-s"} & {option.name for option in OPTIONS}
    assert {option for option, _ in told} == {"kernel", KERNEL_SIZE.name, *of_kernels}


def test_the_sample_of_the_command_is_what_it_prints(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DOCS / "fuzzing.md").read_text(encoding="utf-8")
    pytester.makepyfile(mine_too=MODULE + "\n\nclass MyAllocator(ListAllocator):\n    _give = PlainAllocator._give\n")
    pytester.syspathinsert()
    assert main(["fuzz", "--subject", "mine_too:MyAllocator"]) == 1
    printed = capsys.readouterr().out.replace("mine_too", "my_module").splitlines()
    shown = re.findall(r"^    (.*)$", text.partition("\n## ")[0], re.MULTILINE)
    assert len(shown) == 15
    assert [line for line in shown if not any(each.startswith(line.partition("…")[0]) for each in printed)] == []


def test_the_table_of_capabilities_is_complete() -> None:
    needed = {
        field.name: {part.name for part in SLICES.values() if field.name in part.requires}
        for field in fields(Capabilities)
    }
    assert {
        name: {*re.findall(r"\w+", parts)} for name, parts in TABLE.findall(PAGE.partition("## Capabilities")[2])
    } == needed


def test_the_page_says_which_slices_stand_for_others() -> None:
    """And which one needs nothing."""
    _, of, told = PAGE.partition("only the larger one runs: ")
    pairs = re.findall(r"`(\w+)` (?:in place )?of `(\w+)`", told.partition("\n\n")[0])
    assert of
    assert {(part.unless, part.name) for part in SLICES.values() if part.unless} == set(pairs)
    assert [part.name for part in SLICES.values() if not part.requires] == ["plain"]


def test_the_table_of_options_is_complete() -> None:
    given = set(re.findall(r"^\| `--pagedkv-([a-z-]+)=|`--pagedkv-([a-z-]+)=N` \|", PAGE, re.MULTILINE))
    names = {name for pair in given for name in pair if name}
    assert names == {"subject", *(option.name for option in OPTIONS)}
    ini = set(re.findall(r"`pagedkv_(\w+)`", PAGE))
    assert ini == {"subject", *(option.field for option in OPTIONS)}


def test_the_verbs_share_the_options_that_are_said_to_be_shared() -> None:
    text = (DOCS / "fuzzing.md").read_text(encoding="utf-8")
    verbs, options = re.findall(r"^`pagedkv (fuzz.*?) share (.*?)\.\s", text, re.DOTALL | re.MULTILINE)[0]
    named = set(re.findall(r"`(--[a-z-]+)`", options))
    has = []
    for verb in re.findall(r"`?(\w+)`", verbs):
        parser = ArgumentParser()
        VERBS[verb].configure(parser)
        has.append({option for action in parser._actions for option in action.option_strings})
    assert len(has) == 3
    assert named == set.intersection(*has) - {"-h", "--help", "--no-minimize"}
