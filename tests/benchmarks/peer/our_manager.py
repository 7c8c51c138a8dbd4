"""Our block manager behind the interface of the replay. A handle is the row of a request."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pagedkv.optimized.manager import BlockManager
from pagedkv.spec.words import Refused

from tests.benchmarks.peer.interface import BLOCK_SIZE, Entry, Int32


class OurManager:
    """Batches for a step, scalars for what happens now and then."""

    def __init__(self, num_blocks: int) -> None:
        self.manager = BlockManager(num_blocks, BLOCK_SIZE)
        self._names: dict[int, int] = {}

    @property
    def available_blocks(self) -> int:
        return self.manager.available_blocks

    def native(self, tokens: Int32) -> Int32:
        return tokens

    def arrive(self, name: int, prompt: Int32) -> tuple[int, Int32]:
        return name, prompt

    def enter(self, ticket: tuple[int, Int32]) -> Entry | None:
        name, prompt = ticket
        outcome = self.manager.admit(name, prompt)
        if isinstance(outcome, Refused):
            return None
        row = int(self.manager.rows([name])[0])
        self._names[row] = name
        return Entry(row, outcome.cached_tokens)

    def again(self, handle: int, token: int | None) -> Entry | None:
        name = self._names[handle]
        outcome = self.manager.resume(name)
        if isinstance(outcome, Refused):
            return None
        if token is not None and isinstance(self.manager.append(name, [token]), Refused):
            self.manager.preempt(name)
            return None
        return Entry(handle, outcome.cached_tokens)

    def decode(self, handles: Sequence[int], tokens: Int32) -> list[int]:
        refused: list[int] = self.manager.append_batch(np.array(handles, np.int32), tokens).refused.tolist()
        return refused

    def commit(self, handles: Sequence[int], lengths: Int32) -> None:
        self.manager.commit_batch(np.array(handles, np.int32), lengths)

    def sampled(self, handles: Sequence[Any], tokens: Int32) -> None:
        """Nothing: `decode` appends them."""

    def preempt(self, handle: int) -> None:
        self.manager.preempt(self._names[handle])

    def leave(self, handles: Sequence[int]) -> None:
        self.manager.free_batch(np.array(handles, np.int32))
        for handle in handles:
            del self._names[handle]
