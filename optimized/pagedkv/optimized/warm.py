"""Compiling before it matters: an engine calls `warm_up` when it starts, and no step waits for a compiler."""

import logging
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pagedkv.optimized.loops import compiled
from pagedkv.optimized.manager import BlockManager
from pagedkv.spec.operations import Append
from pagedkv.spec.words import Misuse


def warm_up() -> None:
    """Compile every loop of the block manager: half a minute to a minute, once for each installation, as the logger
    `pagedkv` says then; from the cache on disk in well under a second. Without numba it does nothing of use.

    The loops are the same for all managers, whatever their options, so one call is enough for a process.
    """
    warm(compiled.FOLDER, "the block manager", use_every_loop)


def warm(folder: Path | None, what: str, use: Callable[[], None]) -> None:
    """Compile by using everything, say so if it will take a while, and mark the folder where it is kept as complete."""
    if compiled.IS_COMPILED and (folder is None or not (folder / compiled.COMPLETE).exists()):
        kept = f"kept in {folder}" if folder else "not kept: no folder can be written; set NUMBA_CACHE_DIR to one"
        logging.getLogger("pagedkv").warning("compiling %s, %s", what, kept)
    try:
        use()
    except Exception as error:
        if folder is not None:  # a file of it may be damaged
            shutil.rmtree(folder, ignore_errors=True)
            error.add_note(f"What was compiled before, in {folder}, is removed: start again.")
        raise
    if folder is not None and not (folder / compiled.COMPLETE).exists():
        compiled.complete(folder)


def use_every_loop() -> None:
    """The life of some requests in which each loop is run."""
    manager = BlockManager(64, 2, swap_blocks=16, overlapped_steps=True)
    text = list(range(8))
    manager.begin_step(0)
    for request in range(3):
        manager.admit(request, [*text, request], reserve=4)
        manager.reserve(request, 9)
        manager.commit(request, 9)
    rows = manager.rows([0, 1])
    manager.fork(0, "child")
    manager.pin(text)
    manager.unpin(text)
    for _ in range(2):  # the second plan reuses a buffer
        manager.append_batch(rows, [1, 2])
        manager.commit_batch(rows, manager.reserve_batch(rows, [12, 12]).seq_lens)
    manager.blocks_needed(Append("child", (1,)))
    with suppress(Misuse):  # which takes back what it has done
        manager.commit_batch(rows, [12, 99])
    manager.preempt("child", "swap")
    manager.resume("child")
    manager.truncate("child", 3)
    manager.invalidate(2, 4)
    manager.free("child")
    manager.free_batch([0, 1, 2])
    manager.end_step(0)
    manager.evict(2)
    manager.check()
    manager.stats()
