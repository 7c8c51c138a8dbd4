"""Threads that run compiled loops, which do not hold the interpreter's lock.

They are those in which torch runs its own operators, if they can be reached: OpenMP's, through the entry point of GNU's
library that others have, too. Threads that have just run an operator look out for the next one for a while, and would
be in the way of any others. After a fork, when OpenMP's threads are gone, and where there is none, we have our own.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache, partial
from itertools import count as counted
from threading import get_ident
from typing import Any, Final, TypeAlias

import numpy as np
import torch

Counter: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Run: TypeAlias = Callable[[int, int], None]
"""run(i, counter): what thread i does. `counter` is the address of an int64 from which all take the number of what is
to be done next; a thread comes back when nothing is left to take."""

TAKEN: Final = 2**62
"""What a counter stands at when nothing is left to take."""
Body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def in_threads(run: Run, count: int) -> None:
    """run(i, counter) for 0 <= i < count side by side, or for fewer if threads are wanting; one in the caller's thread.

    When this returns, or raises what one of them has raised, none of them is running or will run.
    """
    counter: Counter = np.zeros(1, np.int64)
    if count == 1:
        run(0, counter.ctypes.data)
        return
    team = openmp()
    if team is None:
        in_pool(run, count, counter)
    else:
        in_team(team, run, count, counter)


@cache
def openmp() -> Any:
    """GOMP_parallel(body, data, num_threads, flags), which runs `body` in all threads of a team, or None."""
    if "OpenMP" not in torch.__config__.parallel_info():
        return None
    try:
        start = ctypes.CDLL(None).GOMP_parallel
    except (AttributeError, OSError, TypeError):
        return None
    start.argtypes, start.restype = (Body, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint), None
    return start


def in_team(team: Any, run: Run, count: int, counter: Counter) -> None:
    """In torch's threads, in all of them: a smaller team would end those that it does not need."""
    numbers, entered, ended, errors = counted(), list[int](), list[int](), list[BaseException]()
    place = counter.ctypes.data

    def body(_: int | None) -> None:
        try:
            entered.append(get_ident())
            number = next(numbers)
            if number < count:
                run(number, place)
                ended.append(number)
        except BaseException as error:  # an interrupt, too: nobody above would see it
            errors.append(error)

    team(Body(body), None, max(count, torch.get_num_threads()), 0)
    if errors:
        raise errors[0]
    if get_ident() not in entered:  # the handler of a signal raised before the first line, which ctypes can but print
        raise KeyboardInterrupt
    if not ended:
        run(0, place)


@cache
def pool(count: int) -> ThreadPoolExecutor:
    """Threads beside the caller's."""
    return ThreadPoolExecutor(count, thread_name_prefix="pagedkv")


def begin_anew() -> None:
    """A child process has none of its parent's threads, and OpenMP would wait for them."""
    global openmp  # noqa: PLW0603  # there is one process
    pool.cache_clear()
    openmp = cache(lambda: None)


if hasattr(os, "register_at_fork"):  # where processes can fork
    os.register_at_fork(after_in_child=begin_anew)


def in_pool(run: Run, count: int, counter: Counter) -> None:
    """In threads of ours."""
    others: list[Future[None]] = []
    try:
        executor = pool(max(1, torch.get_num_threads() - 1))
        with suppress(RuntimeError):  # while the interpreter ends no thread can be started, and the caller is alone
            for i in range(1, count):
                others.append(executor.submit(partial(at_counter, run, i, counter)))
        run(0, counter.ctypes.data)
    finally:
        counter[0] = TAKEN
        settle(others)
    for other in others:
        if not other.cancelled():
            other.result()


def at_counter(run: Run, i: int, counter: Counter) -> None:
    """One of them. It keeps the counter for as long as it waits, and looks there before all else."""
    run(i, counter.ctypes.data)


def settle(others: list[Future[None]]) -> None:
    """Those that have not begun never will, and the others end; an interrupt meanwhile is raised afterwards."""
    interrupt: BaseException | None = None
    waiting = True
    while waiting:
        try:
            wait([other for other in others if not other.cancel()])
            waiting = False
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
