"""What the scheduler of the replay asks of a block manager, so that it is written once for both.

The calls follow the life of a step in a serving engine. Tokens sampled in one step become known at its end (`sampled`)
and get their slot at the beginning of the next (`decode`). Both managers may do the work of a pair of calls in either
of them: what counts is the sum.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
BLOCK_SIZE = 16


class Entry(NamedTuple):
    """A request has its blocks."""

    handle: Any
    """What the manager knows it by, from now on."""
    cached_tokens: int


class Manager(Protocol):
    """A block manager, and the requests it knows. `None` and indices of refused requests mean: not enough blocks."""

    @property
    def available_blocks(self) -> int: ...

    def native(self, tokens: Int32) -> Any:
        """A prompt as the callers of this manager hold it. Never timed."""

    def arrive(self, name: int, prompt: Any) -> Any:
        """A request waits: its ticket. Here a manager may hash the prompt, so as not to do it at each attempt."""

    def enter(self, ticket: Any) -> Entry | None:
        """It gets slots for all of its prompt."""

    def again(self, handle: Any, token: int | None) -> Entry | None:
        """A preempted request comes back, with `token` if that had been refused its slot when it was preempted."""

    def decode(self, handles: Sequence[Any], tokens: Int32) -> list[int]:
        """A slot for one more token of each, in order of importance; the indices of those that were refused."""

    def commit(self, handles: Sequence[Any], lengths: Int32) -> None:
        """The forward pass has written the KV of the first lengths[i] positions."""

    def sampled(self, handles: Sequence[Any], tokens: Int32) -> None:
        """What the forward pass gave."""

    def preempt(self, handle: Any) -> None:
        """Its blocks are given up, its tokens are kept."""

    def leave(self, handles: Sequence[Any]) -> None:
        """These are gone."""
