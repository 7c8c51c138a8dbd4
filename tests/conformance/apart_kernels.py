"""Kernels for a process of their own: right ones, and such that take their process along, each at one place.

What they fail at is a table tail with ids that are out of range, which one relation uses and no other check.
"""

import fcntl
import mmap
import os
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pagedkv.conformance.attention import Case, with_positions
from pagedkv.conformance.attention.cases import Case as CaseType
from pagedkv.spec.attention_subject import AttentionCapabilities, Problem
from tests.conformance.attention_tiled import TiledAttention


class Tiled(TiledAttention):
    """Made for some cases and shapes; one of its bounds is passed infinitely."""

    name = "made for some"
    capabilities = AttentionCapabilities(dtypes=("float32", "bfloat16"), causal_prefill=True, window=True)
    shapes = ({"block_size": 4, "head_dim": 8}, {"block_size": 2, "head_dim": 16})

    def fit(self, case: CaseType) -> CaseType | None:
        return with_positions(case)


class Infinite(Tiled):
    """What it computes is infinite where a style is saturated or large."""

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        out, lse = super().attend(problem)
        if abs(problem.query).max(initial=0) > 5:
            out = out.copy()
            out[:1] = float("inf")
        return out, lse


class Decodes(Tiled):
    capabilities = AttentionCapabilities()


class Fails(Decodes):
    """At an id that is out of range."""

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        if (problem.block_tables >= len(problem.key_cache)).any():
            self.fail()
        return super().attend(problem)

    def fail(self) -> None:
        raise NotImplementedError


class Aborts(Fails):
    def fail(self) -> None:
        print("tables: assertion failed", file=sys.stderr, flush=True)
        os.abort()


class Exits(Fails):
    def fail(self) -> None:
        os._exit(3)


class Hangs(Fails):
    def fail(self) -> None:
        time.sleep(1_000)


class LosesTheDevice(Fails):
    """As after an illegal access on a GPU: whatever is launched from then on raises, too."""

    lost = False

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        if self.lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return super().attend(problem)

    def fail(self) -> None:
        self.lost = True
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


class LosesTheDeviceIfLong(LosesTheDevice):
    """Beyond 19 positions, without a window."""

    capabilities = AttentionCapabilities(window=True)

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        if problem.seq_lens.max(initial=0) > 19 and problem.window is None and not self.lost:
            self.fail()
        return TiledAttention.attend(self, problem) if not self.lost else super().attend(problem)


class AbortsAlone(Aborts):
    capabilities = AttentionCapabilities(window=True)


class RaisesThenAborts(Fails):
    raised = False

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        if self.raised:
            os.abort()
        return super().attend(problem)

    def fail(self) -> None:
        self.raised = True
        raise ValueError("once")


class AbortsAlways(Tiled):
    def attend(self, problem: Problem) -> tuple[Any, Any]:
        os.abort()


class Prints(Tiled):
    def attend(self, problem: Problem) -> tuple[Any, Any]:
        print("launched")
        return super().attend(problem)


class AbortsWhenMade:
    def __init__(self) -> None:
        os.abort()


class DeclaresNothing(Tiled):
    @property
    def capabilities(self) -> Any:  # type: ignore[override]  # what it has is no matter
        raise RuntimeError("nothing")


class Numbered(Tiled):
    name = 3  # type: ignore[assignment]  # no text


class FitAborts(Tiled):
    def fit(self, case: Case) -> Case | None:
        os.abort()


class AbortsIfLong(Decodes):
    """Beyond 8 positions. It takes longer to make than an attempt at a smaller case may last."""

    def __init__(self) -> None:
        time.sleep(2.5)

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        if problem.seq_lens.max(initial=0) > 8:
            os.abort()
        return super().attend(problem)


class Raises(Fails):
    """And goes on to launch."""

    def fail(self) -> None:
        raise ValueError(f"process {os.getpid()}")


class DiesLater(Fails):
    """In the background, some time after the launch."""

    def fail(self) -> None:
        threading.Timer(0.1, os.abort).start()


class AnswersAhead(Fails):
    """Something that is no answer to this question, where answers go."""

    def fail(self) -> None:
        say(b'{"number":1,"checked":9,"detail":null,"error":null,"measured":[0,{},null]}\n')
        time.sleep(0.2)


class SpeaksLater(Fails):
    """In the background, where answers go."""

    def fail(self) -> None:
        threading.Timer(0.2, say, [b"hello\n"]).start()


def say(line: bytes) -> None:
    """To whatever is open for writing, and so to the other side, too."""
    for descriptor in range(3, 20):
        with suppress(OSError):
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
                os.write(descriptor, line)


class SaysNothing(Fails):
    """An exception that cannot say what it is."""

    def fail(self) -> None:
        raise Unspeakable


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class SaysOddThings(Fails):
    def fail(self) -> None:
        raise ValueError("\x1b[31mred \ud800" + "x" * 10_000)


class FitRaises(Tiled):
    def fit(self, case: Case) -> Case | None:
        raise ZeroDivisionError("of its own")


def made_with_cuda() -> Tiled:
    """Only in a process in which CUDA was not initialised before a fork."""
    if os.getppid() == int(os.environ["PAGEDKV_TEST_PARENT"]):
        return Tiled()
    raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")


def load_a_driver() -> mmap.mmap:
    """As when this module is imported: what is mapped is called as the driver of a GPU."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "libcuda.so.1")
        path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


DRIVER = load_a_driver() if os.environ.get("PAGEDKV_TEST_CUDA") else None
