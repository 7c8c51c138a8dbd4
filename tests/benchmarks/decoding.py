"""A manager in the middle of decoding, for whoever measures a step."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from pagedkv.optimized.manager import BlockManager

BLOCK_SIZE: Final = 16
PROMPT: Final = 1024
"""Tokens."""


def prompts(count: int, seed: int = 0) -> NDArray[np.int32]:
    """(count, PROMPT) tokens, no two alike."""
    return np.random.default_rng(seed).integers(0, 50_000, (count, PROMPT), np.int32)


def running(count: int, steps: int) -> tuple[BlockManager, NDArray[np.int32]]:
    """A manager with `count` requests in decoding, their lengths spread over a block, blocks for so many steps more,
    and the rows of the requests."""
    manager = BlockManager(count * (PROMPT + steps) // BLOCK_SIZE + count, BLOCK_SIZE)
    for request, prompt in enumerate(prompts(count)):
        length = PROMPT - request % BLOCK_SIZE
        manager.admit(request, prompt[:length])
        manager.commit(request, length)
    return manager, manager.rows(range(count))
