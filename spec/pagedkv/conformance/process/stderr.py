"""What a program says on stderr: passed on to our own as it comes, and the end of it is remembered."""

import os
import sys
from codecs import getincrementaldecoder
from contextlib import suppress
from typing import Final

from pagedkv.conformance.differential.in_time import SILENT

TAIL: Final = 2_000
"""Bytes that are remembered."""
SHOWN: Final = 400
"""Characters of them that are shown."""
MOST_AT_ONCE: Final = 2**20
"""Bytes that are read before anything else is looked at: a program may say more than anybody can read."""


class Stderr:
    """Of one program, by the descriptor of a pipe that does not block. What it says in an attempt (`attempting`) is
    remembered and not passed on, so that making a failure minimal does not tell it a hundred times."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._told, self._silent = bytearray(), False
        self._first, self._count = bytearray(), 0
        """What it said first since it was asked something, and how much in all."""
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def begin(self) -> None:
        """Something is asked: what the program says from now on belongs to it, and what it has said does not."""
        self.pass_on()
        self._silent = SILENT.get()
        self._first, self._count = bytearray(), 0

    def forget(self) -> None:
        """It starts afresh: what it said before belongs to another subject."""
        self._told.clear()

    def pass_on(self) -> bool:
        """What has come. False: it is closed, and nothing more will come."""
        read = 0
        with suppress(BlockingIOError):
            while read < MOST_AT_ONCE:
                told = os.read(self.descriptor, 2**16)
                if not told:
                    return False
                read += len(told)
                self._told, self._count = (self._told + told)[-TAIL:], self._count + len(told)
                self._first = (self._first + told)[:SHOWN]
                self.write(self._decoder.decode(told))
        return True

    def write(self, text: str) -> None:
        """To our own, unless this is an attempt."""
        if not self._silent and sys.stderr is not None:
            with suppress(OSError, ValueError):  # nobody reads it any more: that is no fault of the subject
                sys.stderr.write(text)
                sys.stderr.flush()

    def last(self) -> str:
        """What it last said, to stand behind what went wrong; empty if it said nothing. Of much that it said when it
        was asked, the beginning, too: a trace of calls may follow what went wrong."""
        self.pass_on()
        text, first = _one_line(self._told), _one_line(self._first)
        if len(text) >= SHOWN:
            text = f"{first[: SHOWN // 2]} … {text[-SHOWN // 2 :]}" if self._count > SHOWN else f"…{text[-SHOWN:]}"
        return f"; its stderr: {text}" if text else ""


def _one_line(told: bytearray) -> str:
    return " ".join(told.decode(errors="replace").split())
