"""Python subjects that do to their process what native code can do."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from pagedkv.reference.manager import BlockManager
from pagedkv.spec import Config, Outcome, RequestId
from pagedkv.spec.subject import Snapshot


class SegfaultsOnSharedAppend(BlockManager):
    """Dies when a block is to be copied before it is written."""

    def append(self, request: RequestId, tokens: Sequence[int]) -> Outcome:
        outcome = super().append(request, tokens)
        if getattr(outcome, "copies", ()):
            os.kill(os.getpid(), signal.SIGSEGV)
        return outcome


class HangsOnFork(BlockManager):
    """Waits for ever, and has written down who it is, if it is told where."""

    def fork(self, parent: RequestId, child: RequestId) -> NoReturn:
        if path := os.environ.get("DYING_PID"):
            Path(path).write_text(str(os.getpid()), encoding="utf-8")
        while True:
            time.sleep(1)


class AbortsOnFork(BlockManager):
    """Says why, and dies."""

    def fork(self, parent: RequestId, child: RequestId) -> NoReturn:
        sys.stderr.write("dying: cannot fork\n")
        sys.stderr.flush()
        os.abort()


class ExitsWhenObserved(BlockManager):
    """Dies when it is looked at with two requests."""

    def observe(self, requests: Sequence[RequestId] | None = None) -> Snapshot:
        seen = super().observe(requests)
        if len(seen.lengths) > 1:
            os._exit(7)
        return seen


class AbortsWhenMade(BlockManager):
    """Dies when its blocks have three tokens."""

    def __init__(self, config: Config) -> None:
        if config.block_size == 3:
            os.abort()
        super().__init__(config)


class Prints(BlockManager):
    """Prints what would be an answer, also past Python."""

    def admit(self, *arguments: Any, **more: Any) -> Outcome:
        print('{"outcome":"ok"}', flush=True)
        os.write(1, b'{"outcome":"ok"}\n')
        return super().admit(*arguments, **more)


def not_a_subject(config: Config) -> None:
    """Makes nothing."""
