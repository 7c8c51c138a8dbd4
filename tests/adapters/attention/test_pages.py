"""What the pages say of other projects' kernels, again, where the project is installed: `make adapters-attention`."""

import argparse
import json
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pagedkv.cli import attention
from pagedkv.conformance.adapters.attention.catalogue import ENTRIES

PAGES = Path(__file__).parents[3] / "docs" / "conformance"
VERB = "pagedkv attention "
IMPORTED = {"sdpa": "torch", "flex": "torch", "vllm_cpu": "vllm", "vllm_triton": "vllm", "sglang_triton": "sglang"}
"""What has to be there for an adapter."""
VERDICTS = {"bug", "documented choice", "our misunderstanding", "limit of the adapter"}


def page(name: str) -> Any:
    return json.loads((PAGES / f"attention-{name}.json").read_text(encoding="utf-8"))


def every_command() -> list[Any]:
    """Those by which the pages show broken laws of the kit, skipped where the project is not installed."""
    marked = []
    for name, entry in ENTRIES.items():
        package = IMPORTED[entry.factory.split(":")[0].split(".")[-1]]
        skip = pytest.mark.skipif(not find_spec(package), reason=f"{package} is not installed: make adapters-attention")
        for index, broken in enumerate(page(name)["broken"]):
            command = broken["inputs"]["command"]
            if command.startswith(VERB):
                marked.append(pytest.param(name, command, marks=skip, id=f"{name}-{index}"))
    return marked


@pytest.mark.parametrize(("name", "command"), every_command())
def test_the_command_of_the_page_shows_what_is_broken(name: str, command: str) -> None:
    try:
        ENTRIES[name].make()
    except ImportError as error:
        pytest.skip(str(error))  # made for another processor, as it says: its page is measured there
    parser = argparse.ArgumentParser()
    attention.configure(parser)
    assert attention.run(parser.parse_args(shlex.split(command.removeprefix(VERB)))) == 1


@pytest.mark.parametrize("name", ENTRIES)
def test_a_page_has_a_verdict_and_a_source_for_every_broken_law(name: str) -> None:
    data = page(name)
    assert data["kind"] == "attention"
    assert data["version"] != "not installed"
    assert {broken["verdict"] for broken in data["broken"]} <= VERDICTS
    assert all(broken["why"] and broken["source"] and broken["inputs"]["command"] for broken in data["broken"])
    assert not {law for broken in data["broken"] for law in broken["law"].split(", ")} & set(data["kept"])
