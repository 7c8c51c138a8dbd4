"""After `warm_up` nothing is compiled any more, whatever a manager is used for."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagedkv.optimized import BlockManager, warm_up
from pagedkv.optimized.arguments import Tokens
from pagedkv.optimized.leasing import Leased
from pagedkv.optimized.loops import batches, calls
from pagedkv.optimized.loops.compiled import IS_COMPILED

from tests.optimized.soak_life import Life

LOOPS = {
    f"{module.__name__}.{name}": loop
    for module in (batches, calls)
    for name, loop in vars(module).items()
    if getattr(loop, "__module__", "") == module.__name__ and hasattr(loop, "signatures") and name != "note"
}
"""What the manager calls; `note` is for these alone."""


def kinds() -> dict[str, int]:
    """For how many kinds of arguments each of them has been compiled."""
    return {
        name: len(loop.signatures) for name, loop in LOOPS.items() if name != "pagedkv.optimized.loops.batches.note"
    }


def use_it_for_everything() -> None:
    """Two thousand operations on managers of all kinds, and arrays of all kinds as arguments."""
    for seed in range(8):
        Life(f"warm {seed}").run(250, check_every=50)
    manager, text = BlockManager(400, 4), np.arange(40, dtype=np.int32)
    read_only = text.copy()
    read_only.flags.writeable = False
    texts: list[Tokens] = [text, read_only, text[::-1], text[::2], text.astype(np.uint8), range(9), (1, 2)]
    for request, tokens in enumerate(texts):
        manager.admit(request, tokens)
        manager.commit(request, len(tokens))
        manager.pin(tokens)
        manager.unpin(tokens)
    rows = manager.rows(range(6))
    for width in range(70):  # past where buffers have exactly the width that is shown, with rows in other orders
        manager.append_batch(rows[:: (-1) ** width], read_only[:6])
        manager.append_batch(rows[::2], text[:6:2], np.array([1, 1, 1], np.uint8))
    manager.commit_batch(list(range(3)), [41, 42, 43])
    manager.free_batch(rows[::-1])
    use_leases(manager)


def use_leases(manager: BlockManager) -> None:
    """Blocks go to a device, and come back in arrays of any kind."""
    for kind in (np.int64, np.int32, np.uint16):
        manager.admit("away", range(6))
        outcome = manager.lease(9)
        assert isinstance(outcome, Leased)
        blocks: Any = np.array(outcome.blocks, kind)
        manager.adopt("away", range(12), blocks[:3])
        manager.adopt("away", range(21), [*blocks[:3].tolist(), *blocks[:2:-2][:3]])
        manager.return_lease(blocks[-2:2:-2])
        manager.free("away")


def main() -> None:
    """In a process of its own, since nothing may have been compiled before."""
    warm_up()
    compiled = kinds()
    assert set(compiled.values()) == {1}, compiled
    use_it_for_everything()
    assert kinds() == compiled, {name: count for name, count in kinds().items() if count != 1}


@pytest.mark.skipif(not IS_COMPILED, reason="without numba there is nothing to compile")
def test_everything_is_compiled_by_then_and_nothing_twice() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", f"from {__name__} import main; main()"]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2], env=environment)
