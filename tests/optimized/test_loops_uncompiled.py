"""The loops are one program, whoever runs it: compiled, uncompiled, or where there is nothing to compile with."""

import hashlib
import os
import random
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pagedkv.optimized.loops.compiled import IS_COMPILED
from pagedkv.spec import Config

from tests.optimized import lease_programs
from tests.optimized.feature_programs import FULL, SHORT, SINKS, AdmitApart, AdmitExternal, Featured, Invalidate
from tests.optimized.state_image import answer, image

ROOT: Final = Path(__file__).parents[2]
SELF: Final = "tests.optimized.test_loops_uncompiled"
OPTIONS: Final[tuple[dict[str, Any], ...]] = (
    {}, {"events": True}, {"groups": (FULL, SINKS)}, {"groups": (SHORT, FULL), "events": True}
)  # fmt: skip
NO_NUMBA: Final = "import sys; sys.modules['numba'] = None\n"
"""As if it were not installed."""
needs_numba: Final = pytest.mark.skipif(not IS_COMPILED, reason="nothing is compiled here")


def python(*arguments: str, **environment: str) -> str:
    """What another process prints, which compiles unless told otherwise."""
    ours = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    path = {"PYTHONPATH": os.pathsep.join(map(str, filter(None, sys.path)))}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=ours | path | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


def config_of(rng: random.Random) -> Config:
    """Any options."""
    return Config(
        num_blocks=rng.randint(1, 12),
        block_size=rng.randint(1, 4),
        prefix_cache=rng.random() < 0.9,
        sliding_window=rng.choice((None, None, 1, 3, 6)),
        sink_tokens=rng.choice((0, 0, 1, 5)),
        max_rollback=rng.randint(0, 2),
        swap_blocks=rng.randint(0, 5),
        max_requests=rng.choice((None, None, 2, 4)),
        overlapped_steps=rng.random() < 0.5,
    )


def history(num_programs: int, length: int = 50) -> Iterator[str]:
    """What happens in random programs: each operation, and a digest of its answer and of all that it has left."""
    for number in range(num_programs):
        rng = random.Random(number)
        manager = Featured(config_of(rng), **OPTIONS[number % len(OPTIONS)])
        for _ in range(length):
            op = lease_programs.operation(rng, manager, (AdmitApart, AdmitExternal, Invalidate))
            manager.plan = None
            result = lease_programs.run(manager, op)
            seen = str(result), answer(manager, manager.plan), image(manager)
            yield f"{number}: {op} {hashlib.blake2b(repr(seen).encode(), digest_size=8).hexdigest()}"


def show(num_programs: int) -> None:
    """For another process to compare."""
    print(IS_COMPILED)
    print(*history(num_programs), sep="\n")


@needs_numba
@pytest.mark.parametrize("how", ["uncompiled", "without numba"])
def test_results_are_the_same_compiled_and_not(how: str) -> None:
    """Thousands of operations; the first that differs is shown."""
    disabled = {"NUMBA_DISABLE_JIT": "1"} if how == "uncompiled" else {}
    program = f"from {SELF} import show; show(60)"
    other = python("-c", NO_NUMBA * (not disabled) + program, **disabled).splitlines()
    compiled = python("-c", program).splitlines()
    assert (compiled.pop(0), other.pop(0), len(compiled)) == ("True", "False", 3000)
    assert [pair for pair in zip(compiled, other, strict=True) if pair[0] != pair[1]][:1] == []


@needs_numba
def test_nothing_is_left_of_a_fault_inside_a_loop(pytestconfig: pytest.Config) -> None:
    """The laws of failures once more where a loop is lines that are traced, not one call."""
    seed = pytestconfig.getoption("hypothesis_seed")
    names = ("atomic", "loops_chains", "loops_log")
    files = [f"tests/optimized/test_{name}.py" for name in names]
    seeded = [] if seed is None else [f"--hypothesis-seed={seed}"]
    output = python("-m", "pytest", "-q", "-p", "no:cacheprovider", *seeded, *files, NUMBA_DISABLE_JIT="1")
    assert " passed" in output


LISTENED: Final = """
import logging
class Show(logging.Handler):
    def emit(self, record): print(record.getMessage())
logging.getLogger("pagedkv").addHandler(Show())
logging.getLogger("pagedkv").setLevel(logging.INFO)
from pagedkv.optimized import BlockManager
from pagedkv.optimized.loops import calls
manager = BlockManager(8, 2)
manager.admit("a", [1, 2, 3])
manager.commit("a", 2)
print(manager.admit("b", [1, 2, 9]).cached_tokens, manager.append_batch(["a", "b"], [7, 7]).slot_mapping.tolist())
"""


def test_without_numba_all_works_and_one_line_says_what_to_install() -> None:
    said, answered = python("-c", NO_NUMBA + LISTENED).splitlines()
    extra = said.partition('pip install "pagedkv[')[2].removesuffix(']"')
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(needed.startswith("numba") for needed in extras[extra])
    assert answered == "2 [3, 5]"


@needs_numba
def test_with_it_nothing_is_said() -> None:
    assert python("-c", LISTENED).splitlines() == ["2 [3, 5]"]
