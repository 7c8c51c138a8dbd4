"""Subjects for the tests of the plugin: one that is right, and others, each wrong in a way that is known."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, NoReturn

from pagedkv.reference.manager import BlockManager
from pagedkv.spec import Outcome, RequestId
from pagedkv.spec.subject import Capabilities, Snapshot


class Right(BlockManager):
    """The reference, of which little is declared."""

    lost = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(fork=True, truncate=True)

    def observe(self, requests: Sequence[RequestId] | None = None) -> Snapshot:
        """What is lost is missing."""
        seen = super().observe(requests)
        return replace(seen, available_blocks=seen.available_blocks - self.lost)


class LosesWhatIsFreed(Right):
    """One block at every `free`."""

    def free(self, request: RequestId) -> Outcome:
        done = super().free(request)
        self.lost += 1
        return done


class LosesWhatIsTruncated(Right):
    """One block at every `truncate`: another bug, which breaks the same law."""

    def truncate(self, request: RequestId, length: int) -> Outcome:
        done = super().truncate(request, length)
        self.lost += 1
        return done


class LosesBoth(LosesWhatIsTruncated, LosesWhatIsFreed):
    """Has both bugs."""


class LosesOnce(Right):
    """Wrong in the first program of a process, and right ever after."""

    wrong: ClassVar[list[bool]] = [True]

    def free(self, request: RequestId) -> Outcome:
        done = super().free(request)
        self.lost += bool(self.wrong and self.wrong.pop())
        return done


class Interrupted(Right):
    """Somebody presses Ctrl-C at the first admission."""

    def admit(self, *arguments: Any, **more: Any) -> NoReturn:
        raise KeyboardInterrupt


class WithoutObserve:
    """No subject."""

    capabilities = Capabilities()

    def __init__(self, config: object) -> None:
        self.admit = self.append = self.commit = self.free = config


def exits(config: object) -> NoReturn:
    """No factory."""
    raise SystemExit(3)


def asks(config: object) -> NoReturn:
    """For what is not installed."""
    raise ModuleNotFoundError("No module named 'numba'", name="numba")
