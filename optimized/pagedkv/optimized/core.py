"""What all operations of a manager share: its options, and that each happens in whole or not at all."""

import functools
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Concatenate, ParamSpec, TypeVar

from pagedkv.optimized.arguments import flag, integer, optional
from pagedkv.optimized.loops.arrays import MAX_INT32
from pagedkv.optimized.groups import CacheGroup
from pagedkv.optimized.hashing import HashFunction, keyed_hash
from pagedkv.optimized.journal import MOST_LINES
from pagedkv.optimized.loops.memory import LogFull
from pagedkv.optimized.state import ManagerState
from pagedkv.spec.words import Config, Misuse

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Core = TypeVar("Core", bound="ManagerCore")


class ManagerCore:
    """The state of a manager, made from its options."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        prefix_cache: bool = True,
        sliding_window: int | None = None,
        sink_tokens: int = 0,
        groups: Sequence[CacheGroup] | None = None,
        max_rollback: int = 0,
        swap_blocks: int = 0,
        max_requests: int | None = None,
        overlapped_steps: bool = False,
        hash_seed: bytes | None = None,
        hash_function: HashFunction | None = None,
        events: bool = False,
        debug: bool = False,
    ) -> None:
        window = optional("sliding_window", sliding_window, 1, MAX_INT32)
        config = Config(
            integer("num_blocks", num_blocks, 1, MAX_INT32),
            integer("block_size", block_size, 1, MAX_INT32),
            prefix_cache=prefix_cache,
            sliding_window=window,
            max_rollback=integer("max_rollback", max_rollback, 0, MAX_INT32),
            swap_blocks=integer("swap_blocks", swap_blocks, 0, MAX_INT32),
            max_requests=optional("max_requests", max_requests, 1, MAX_INT32),
            overlapped_steps=overlapped_steps,
        )
        most = MAX_INT32 // config.block_size
        if config.num_blocks > most:
            raise Misuse("num_blocks", num_blocks, f"at most {MAX_INT32} slots, so {most} blocks")
        if hash_seed is not None and not isinstance(hash_seed, bytes):
            raise Misuse("hash_seed", hash_seed, "bytes, or None for a key by chance")
        if hash_function is not None and not callable(hash_function):
            raise Misuse("hash_function", hash_function, "a function of two bytes, or None for keyed BLAKE2b")
        events, debug = flag("events", events), flag("debug", debug)
        self._state = ManagerState(
            config,
            _groups(groups, window, sink_tokens),
            keyed_hash(hash_seed) if hash_function is None else hash_function,
            events=events,
        )
        self._owner = threading.current_thread() if debug else None

    @property
    def config(self) -> Config:
        return self._state.config

    @property
    def groups(self) -> tuple[CacheGroup, ...]:
        """The cache groups, one at least."""
        return self._state.windows.groups

    @property
    def available_blocks(self) -> int:
        """Blocks that may be handed out: free or idle, and not held by a step in flight."""
        return self._state.pool.available

    def hand_over(self) -> None:
        """With `debug`: from now on the calling thread is the one that uses this manager."""
        if self._owner is not None:
            self._owner = threading.current_thread()

    def _own_state(self) -> ManagerState:
        """The state, for the thread that may see it, and not in the middle of an operation."""
        if self._owner is not None and self._owner is not threading.current_thread():
            allowed = f"{self._owner.name!r}, which uses this manager: it is not thread-safe, and can be hand_over()ed"
            raise Misuse("thread", threading.current_thread().name, allowed)
        if self._state.journal.open:
            self._take_back()
        return self._state

    def _take_back(self, running: int = 0) -> None:
        """An operation has begun and not ended. If it is running on this thread's stack, in a `run` besides `running`
        ones, who calls now is code that it has called itself, an id's or the hash function: misuse. If it is not, it
        was cut off while it was being taken back, by an interrupt, and that is finished now."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            ours = frame.f_code.co_name == "run" and frame.f_code.co_filename == __file__
            running -= ours and frame.f_locals.get("self") is self
            frame = frame.f_back
        if running < 0:
            raise Misuse("operation", "a call from inside another one", "one operation of a manager at a time")
        self._state.roll_back()


def _groups(groups: object, sliding_window: int | None, sink_tokens: int) -> tuple[CacheGroup, ...]:
    """The cache groups that the options ask for."""
    if groups is None:
        return (CacheGroup(sliding_window, sink_tokens),)
    if sliding_window is not None or sink_tokens:
        raise Misuse("groups", groups, "None together with sliding_window or sink_tokens: each group has its own")
    allowed = "a sequence of at least one CacheGroup"
    if not isinstance(groups, Sequence) or not groups or not all(isinstance(g, CacheGroup) for g in groups):
        raise Misuse("groups", groups, allowed)
    return tuple(groups)


def atomic(
    operation: Callable[Concatenate[Core, Arguments], Result],
) -> Callable[Concatenate[Core, Arguments], Result]:
    """An operation that happens in whole or, whatever it raises, not at all."""

    def run(self: Core, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        state = self._state if self._owner is None else self._own_state()
        journal = state.journal
        if journal.open:
            self._take_back(running=1)
        lines = MOST_LINES
        while True:
            journal.begin(lines)
            try:
                result = operation(self, *args, **kwargs)
                journal.open = False
                return result
            except LogFull:
                pass
            except BaseException:
                state.roll_back()
                raise
            state.roll_back()
            lines = journal.lengthen()

    functools.update_wrapper(run, operation)
    return run
