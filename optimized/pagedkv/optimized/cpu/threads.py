"""Threads that run compiled loops, which do not hold the interpreter's lock."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import torch

Counter: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
TAKEN = 2**62
"""What a counter stands at when nothing is left to take."""


@cache
def pool(count: int) -> ThreadPoolExecutor:
    """Threads beside the caller's."""
    return ThreadPoolExecutor(count, thread_name_prefix="pagedkv")


os.register_at_fork(after_in_child=pool.cache_clear)  # a child has none of its parent's threads


def in_threads(run: Callable[[int, int], None], count: int) -> None:
    """run(i, counter) for 0 <= i < count side by side, the first in the caller's thread, where `counter` is the address
    of an int64 from which all of them take what is next: so nothing is left to do when the first comes back.

    When this returns, or raises because the caller was interrupted, none of them is running or will run.
    """
    counter: Counter = np.zeros(1, np.int64)
    others: list[Future[None]] = []
    try:
        if count > 1:
            start_others(run, counter, count, others)
        run(0, counter.ctypes.data)
    finally:
        counter[0] = TAKEN
        settle(others)
    for other in others:
        if not other.cancelled():
            other.result()


def start_others(run: Callable[[int, int], None], counter: Counter, count: int, others: list[Future[None]]) -> None:
    """Start all but the first. Each keeps the counter for as long as it waits: it looks there before all else."""
    executor = pool(max(1, torch.get_num_threads() - 1))
    with suppress(RuntimeError):  # while the interpreter ends no thread can be started, and the caller is alone
        for i in range(1, count):
            others.append(executor.submit(at_counter, run, i, counter))


def at_counter(run: Callable[[int, int], None], i: int, counter: Counter) -> None:
    """One of them."""
    run(i, counter.ctypes.data)


def settle(others: list[Future[None]]) -> None:
    """Those that have not begun never will, and the others end; an interrupt meanwhile is raised afterwards."""
    interrupt: BaseException | None = None
    waiting = True
    while waiting:
        try:
            for other in others:
                other.cancel()
            wait(others)
            waiting = False
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
