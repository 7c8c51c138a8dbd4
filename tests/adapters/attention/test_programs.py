"""Order and bounds of other projects' kernels, where they are installed: `make adapters-attention`."""

import json
import os
from importlib.util import find_spec

import pytest

from tests.adapters.attention.programs import ADAPTERS, BOUNDS, ORDER, PAGES, found

NEEDS = {name: name.split("-", maxsplit=1)[0] for name in ADAPTERS}


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="Triton interprets by itself in this process")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                not find_spec(package), reason=f"{package} is not installed: make adapters-attention"
            ),
        )
        for name, package in NEEDS.items()
    ],
)
def test_the_page_says_which_of_both_laws_are_broken(name: str) -> None:
    data = json.loads((PAGES / f"attention-{name}.json").read_text(encoding="utf-8"))
    listed = {broken["law"] for broken in data["broken"]} & {BOUNDS, ORDER}
    assert set(found(name)) == listed
