"""Kernels for the tests of pins and of the plugin: one that is right, and others, each wrong in a way that is known."""

from typing import Any

import numpy as np

from pagedkv.conformance.attention import Case
from pagedkv.reference.attention import ReferenceAttention
from pagedkv.reference.manager import BlockManager
from pagedkv.spec import Config
from pagedkv.spec.attention_subject import AttentionCapabilities, Problem


class Right(ReferenceAttention):
    """The reference, of which little is declared: two configurations."""

    capabilities = AttentionCapabilities(window=True, returns_lse=True)


class Wrong(Right):
    """A log-sum-exp that is too large by 1 for some requests: it breaks `lse_bound`."""

    def wrong(self, problem: Problem) -> Any:
        """For which requests."""
        return np.ones(len(problem.seq_lens), bool)

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        out, lse = super().attend(problem)
        rows = np.repeat(self.wrong(problem), problem.query_lens)
        return out, np.where(rows[:, None], lse + np.float32(1), lse)


class WrongIfLong(Wrong):
    """From 17 positions on."""

    def wrong(self, problem: Problem) -> Any:
        return problem.seq_lens > 16


class WrongInWindows(Wrong):
    """In windows: another fault, which breaks the same law."""

    def wrong(self, problem: Problem) -> Any:
        return np.full(len(problem.seq_lens), problem.window is not None)


class WrongTwice(Wrong):
    """Has both faults."""

    def wrong(self, problem: Problem) -> Any:
        return (problem.seq_lens > 16) | (problem.window is not None)


class OfOneShape(Wrong):
    """Wrong, and made for blocks of 16."""

    shapes = ({"block_size": 16},)


class WithoutWindows(Right):
    """Declares windows and takes no launch with one."""

    def fit(self, case: Case) -> Case | None:
        return case if case.window is None else None


class Speechless(Right):
    """Answers no launch."""

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        raise RuntimeError("no device")


class RaisesTwice(Right):
    """One exception where there is one head, and another one at more than 16 positions, which is told first."""

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        if problem.seq_lens.max(initial=0) > 16:
            raise IndexError("of long requests")
        if problem.query.shape[1] == 1:
            raise NotImplementedError("one head")
        return super().attend(problem)


class FitRaises(Right):
    """No subject."""

    def fit(self, case: Case) -> Any:
        raise ValueError("needs two requests")


class SaysAnything(Right):
    """No subject: what it fits is no case."""

    def fit(self, case: Case) -> Any:
        return True


class Unrounded(Right):
    """Cannot say how it rounds."""

    def rounding(self, problem: Problem) -> Any:
        return 1 / int(problem.scale == 0)


class Malformed(Right):
    """Forgets the log-sum-exp."""

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        return super().attend(problem)[0], None


class MalformedInTheTail(Right):
    """Returns nothing where a table has ids that are out of range, and answers else."""

    def attend(self, problem: Problem) -> Any:
        return None if (problem.block_tables >= len(problem.key_cache)).any() else super().attend(problem)


def manager_or_kernel(config: Config | None = None) -> Any:
    """What is wanted: a block manager of a pool, or a kernel."""
    return Right() if config is None else BlockManager(config)
