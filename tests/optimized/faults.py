"""Failures from inside: raise at one executed line after another, or in what the caller has handed in."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import CO_GENERATOR
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal, TypeAlias

from pagedkv.optimized import manager as public
from pagedkv.optimized.manager import BlockManager
from pagedkv.spec import Misuse

from tests.optimized.state_image import answer, differences, image

PACKAGE = str(Path(public.__file__).parent)


def ours(code: CodeType) -> bool:
    """Code of the manager. Its subject for the conformance kit is a caller: what is over there is done."""
    return code.co_filename.startswith(PACKAGE) and not code.co_filename.endswith("subject.py")


Operate: TypeAlias = Callable[[BlockManager], object]


class Fault(BaseException):
    """Nothing that any code could expect."""


@dataclass
class Countdown:
    """Raises at the `at`-th event, once."""

    at: int
    error: BaseException
    count: int = 0
    where: str = ""
    """Where it was raised; empty if it was not."""

    def tick(self, where: Callable[[], str]) -> None:
        self.count += 1
        if self.count == self.at:
            self.where = where()
            raise self.error


@dataclass
class Tracer:
    """Ticks at every event of these kinds in the code of the package: `line` before a line is run, `return` when a
    function is about to return, `opcode` before each instruction. Code that is compiled has none."""

    countdown: Countdown
    kinds: tuple[str, ...]
    _ours: dict[CodeType, bool] = field(default_factory=dict)

    def enter(self, frame: FrameType, event: str, arg: object) -> Callable[[FrameType, str, Any], Any] | None:
        code = frame.f_code
        if code not in self._ours:
            self._ours[code] = ours(code)
        if not self._ours[code]:
            return None
        frame.f_trace_opcodes = "opcode" in self.kinds and not self._outermost(frame)
        return self._within

    def _outermost(self, frame: FrameType) -> bool:
        """What the caller called."""
        return frame.f_back is None or not ours(frame.f_back.f_code)

    def _within(self, frame: FrameType, event: str, arg: object) -> Callable[[FrameType, str, Any], Any]:
        """What comes when the operation is over, or while another exception is handled, is no part of it. A generator
        returns also when it is thrown away, and nobody would hear of what is raised then."""
        over = event == "return" and (self._outermost(frame) or frame.f_code.co_flags & CO_GENERATOR != 0)
        if event in self.kinds and not over and sys.exc_info()[0] is None:
            self.countdown.tick(lambda: f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {event}")
        return self._within


Injector: TypeAlias = Callable[[int, BaseException], Any]


def at_lines(*kinds: Literal["line", "return", "opcode"]) -> Injector:
    """Faults at executed lines."""

    @contextmanager
    def inject(at: int, error: BaseException) -> Iterator[Countdown]:
        countdown, before = Countdown(at, error), sys.gettrace()
        sys.settrace(Tracer(countdown, kinds).enter)
        try:
            yield countdown
        finally:
            sys.settrace(before)

    return inject


@dataclass
class Calls:
    """Faults in code of the caller's: it calls `tick`."""

    countdown: Countdown | None = None

    def tick(self, where: str) -> None:
        if self.countdown is not None:
            self.countdown.tick(lambda: where)

    @contextmanager
    def inject(self, at: int, error: BaseException) -> Iterator[Countdown]:
        self.countdown = Countdown(at, error)
        try:
            yield self.countdown
        finally:
            self.countdown = None


def attempt(manager: BlockManager, operate: Operate) -> object:
    """What an operation answers; a misuse as its text."""
    try:
        return answer(manager, operate(manager))
    except Misuse as misuse:
        return str(misuse)


def damage(
    fresh: Callable[[], BlockManager], operate: Operate, inject: Injector, first: int = 1, stride: int = 1
) -> tuple[int, list[str]]:
    """Fail at event number `first`, `first + stride`, … of an operation, each time in a manager as `fresh` makes it,
    and then do it again. The number of failures, and what was not as if there had been none."""
    before, twin = image(fresh()), fresh()
    expected = attempt(twin, operate)
    after, wrong, at, failures = image(twin), list[str](), first, 0
    while True:
        manager, error = fresh(), MemoryError() if at % 5 == 0 else Fault()
        try:
            with inject(at, error) as countdown:
                attempt(manager, operate)
        except (Fault, MemoryError) as caught:
            if caught is not error:
                raise
        else:
            return failures, wrong + [f"{countdown.where}: swallowed"] * bool(countdown.where)
        failures += 1
        at += stride
        left = differences(image(manager), before)
        if left:
            wrong.append(f"{countdown.where}: {', '.join(left)} not put back")
            continue
        if failures % 10 == 1:  # equal images do not hide that it would fail, so that not every one need be checked
            manager.check()
        if attempt(manager, operate) != expected:
            wrong.append(f"{countdown.where}: another answer afterwards")
        if left := differences(image(manager), after):
            wrong.append(f"{countdown.where}: {', '.join(left)} differ afterwards")
