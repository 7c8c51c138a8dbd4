"""The whole kit in several processes: each configuration compiles kernels of its own, which is most of the time."""

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import torch

from pagedkv.cli.parts.numerics_table import ON_A_GPU, load, measured, merged, save
from pagedkv.conformance.attention import AttentionReport, Configuration, run
from pagedkv.conformance.attention.plan import configurations
from pagedkv.optimized.attention.subject import OptimizedAttention


EACH_BYTES = 20 * 2**30
"""Memory of the device for one process: two caches whose blocks lie 2**31 elements apart, and the rest."""


def processes_for(device: str) -> int:
    """As many as there are cores and memory for; compiling keeps a core busy."""
    memory = torch.cuda.get_device_properties(device).total_memory if device == "cuda" else 2 * EACH_BYTES
    return max(1, min(os.cpu_count() or 1, memory // EACH_BYTES))


def hold(
    device: str, size: Literal["tiny", "full"], processes: int, only: Sequence[Configuration] | None = None
) -> list[AttentionReport]:
    """Hold `OptimizedAttention(device)` to every law: a report a process, the configurations dealt out in turn."""
    planned = configurations(OptimizedAttention(device).capabilities, size) if only is None else list(only)
    hands = [planned[turn::processes] for turn in range(processes) if planned[turn::processes]]
    with ProcessPoolExecutor(len(hands), mp_context=get_context("spawn")) as pool:
        return list(pool.map(partial(_hold, device, size), hands))


def add_rows(reports: Sequence[AttentionReport], card: str, directory: Path) -> None:
    """The rho of every configuration into the table of numerics in `directory`, in place of earlier ones of the card.

    Raises `ValueError` if a law was broken.
    """
    date, before = f"{datetime.now(UTC):%Y-%m-%d}", load(directory)
    fresh = [row for report in reports for row in measured(report, ON_A_GPU, card, date)]
    save(merged(before, [*(row for row in before if row.how != ON_A_GPU), *fresh]), directory)


def _hold(device: str, size: Literal["tiny", "full"], hand: Sequence[Configuration]) -> AttentionReport:
    torch.set_num_threads(1)  # the processes share the cores
    return run(OptimizedAttention(device), seed=0, size=size, only=hand)
