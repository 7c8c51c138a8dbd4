"""Kernels for a process of their own: right ones, and such that take their process along, each at one place.

What they fail at is a table tail with ids that are out of range, which one relation uses and no other check.
"""

import os
import sys
import time
from types import SimpleNamespace
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


class FitAborts(Tiled):
    def fit(self, case: Case) -> Case | None:
        os.abort()


def made_with_cuda() -> Tiled:
    """Only in a process in which CUDA was not initialised before a fork."""
    if os.getppid() == int(os.environ["PAGEDKV_TEST_PARENT"]):
        return Tiled()
    raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")


def pretend_cuda() -> None:
    """As if this module had initialised CUDA when it was imported."""
    sys.modules["torch"] = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True))  # type: ignore[assignment]  # a stand-in


if os.environ.get("PAGEDKV_TEST_CUDA"):
    pretend_cuda()
