"""Subjects that `pagedkv` must survive: they raise, exit or print where they should not."""

import atexit
import os
import subprocess
import sys
from typing import Any, NoReturn

from pagedkv.reference import BlockManager
from pagedkv.spec import Config, Misuse, Ok, Outcome, RequestId


def raises(config: Config) -> NoReturn:
    """No subject."""
    raise RuntimeError("no\nmemory")


def exits(config: Config) -> NoReturn:
    """No subject, and no report."""
    sys.exit(0)


def something(config: Config) -> object:
    """No subject."""
    return {"num_blocks": config.num_blocks}


def nothing_fits(config: Config) -> NoReturn:
    """A subject that has no small pool, and says so."""
    raise Misuse("num_blocks", config.num_blocks, "more")


class Later(BlockManager):
    """Can be made with the smallest pool only."""

    def __init__(self, config: Config) -> None:
        if config.num_blocks > 2:
            sys.exit(0)
        super().__init__(config)


class Small(BlockManager):
    """Has at most three blocks, and says so."""

    def __init__(self, config: Config) -> None:
        if config.num_blocks > 3:
            raise Misuse("num_blocks", config.num_blocks, "at most 3")
        super().__init__(config)


class Undeclared(BlockManager):
    """Declares its capabilities in a form of its own."""

    @property
    def capabilities(self) -> Any:
        """No `Capabilities`."""
        return {"fork": True}


class Exiting(BlockManager):
    """Ends the process at the first admission."""

    def admit(self, *arguments: Any, **more: Any) -> NoReturn:
        """The wrong answer."""
        sys.exit(0)


class Talking(BlockManager):
    """Prints what it does."""

    def __init__(self, config: Config) -> None:
        print("made")
        super().__init__(config)

    def free(self, request: RequestId) -> Outcome:
        print("freed")
        return super().free(request)


class Writing(BlockManager):
    """Writes past `sys.stdout`."""

    def __init__(self, config: Config) -> None:
        os.write(1, b"native\n")
        print("interpreter", file=sys.__stdout__)
        subprocess.run([sys.executable, "-c", "print('child')"], check=True)
        atexit.register(print, "at the end")
        super().__init__(config)


class BrokenAndTalking(Talking):
    """Does not free."""

    def free(self, request: RequestId) -> Outcome:
        """Says so, at least."""
        print("not freed")
        return Ok()
