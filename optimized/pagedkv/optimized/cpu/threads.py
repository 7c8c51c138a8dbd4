"""Threads that run compiled loops, which do not hold the interpreter's lock."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache

import torch


@cache
def pool(count: int) -> ThreadPoolExecutor:
    """Threads beside the caller's."""
    return ThreadPoolExecutor(count, thread_name_prefix="pagedkv")


os.register_at_fork(after_in_child=pool.cache_clear)  # a child has none of its parent's threads


def in_threads(run: Callable[[int], None], count: int) -> None:
    """run(0) … run(count - 1) side by side, the first in the caller's thread."""
    if count == 1:
        run(0)
        return
    others = [pool(max(1, torch.get_num_threads() - 1)).submit(run, i) for i in range(1, count)]
    try:
        run(0)
    finally:
        wait(others)
    for other in others:
        other.result()
