"""What is tuned: for which launches, with which tilings, and whether a tiling may be used at all.

A tiling is chosen by the columns of `tiles.csv`, all of them shapes of a model and the card. Which one is faster may
depend on the batch; which one is taken never does, or a request's bits would depend on its company.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import torch

from pagedkv.optimized.attention.arguments import Mask
from pagedkv.optimized.attention.attend import SPLIT_SIZE, checked_call
from pagedkv.optimized.attention.attend_launches import attention_launches
from pagedkv.optimized.attention.cutting import Overrides
from pagedkv.optimized.attention.subject import array_of, triton_rounding
from pagedkv.optimized.attention.tuned import Tiling, power_of_two
from pagedkv.optimized.audit.aot import audit_launch
from pagedkv.optimized.audit.targets import TARGETS
from pagedkv.optimized.launch import Launch
from pagedkv.spec.bound import paged_bound, rho
from tests.benchmarks.gpu.checking import small
from tests.benchmarks.gpu.grid import K, Row
from tests.benchmarks.gpu.inputs import Inputs, make
from tests.benchmarks.gpu.shapes import Shape

BATCHES = {
    "decode": (((4 * K,) * 32, 1), ((128 * K,), 1), ((1 * K,) * 128, 1)),
    "prefill": (((4 * K,) * 4, 4 * K), ((16 * K,), 16 * K), ((16 * K,) * 2, 512)),
}
"""Lengths, and query rows of each request, that a tiling is timed on."""


@dataclass(frozen=True)
class Goal:
    """One row of the table to be found."""

    kernel: str
    dtype: str
    head_dim: int
    group: int
    block_size: int | None = None
    """None: for any, found with blocks of 16."""

    def key(self, architecture: str) -> dict[str, str]:
        """The first columns of its row. `head_dim` and `group` are powers of two there."""
        size = "*" if self.block_size is None else str(self.block_size)
        dim, group = max(16, power_of_two(self.head_dim)), power_of_two(self.group)
        values = (self.kernel, architecture, self.dtype, str(dim), str(group), size)
        return dict(zip(("kernel", "architecture", "dtype", "head_dim", "group", "block_size"), values, strict=True))

    def rows(self) -> list[Row]:
        """What it is timed on, the most important first."""
        return [Row(self.kernel, self._shape(lengths, rows), 0) for lengths, rows in BATCHES[self.kernel]]

    def _shape(self, lengths: tuple[int, ...], rows: int) -> Shape:
        model = {"group": self.group, "head_dim": self.head_dim, "block_size": self.block_size or 16}
        return Shape(lengths, (rows,) * len(lengths), dtype=self.dtype, **model)


def goals() -> list[Goal]:
    """The most important first: time may not suffice for all."""
    first = [Goal("decode", "bfloat16", 128, 4), Goal("prefill", "bfloat16", 128, 4)]
    dims = [Goal(kernel, "bfloat16", dim, group) for dim, group, kernel in product(
        (128, 64, 256), (8, 1, 4), ("decode", "prefill"))]  # fmt: skip
    pages = [Goal("decode", "bfloat16", 128, group, 1) for group in (4, 8, 1)]
    half = [replace(goal, dtype="float16") for goal in (*first, *dims)]
    return list(dict.fromkeys([*first, *pages[:1], *dims, *pages, *half]))


def candidates(goal: Goal) -> list[Tiling]:
    """All that are tried. A program of `decode` has the rows of one token: more would be padding.

    Of the stages those that add a buffer (`Tiling.num_stages`), and 1 and 2, which schedule one buffer otherwise.
    """
    least = max(16, power_of_two(goal.group))
    if goal.kernel == "decode":
        every = product((16, 32, 64, 128), (least,), (2, 4, 8), (1, 2, 3, 5, 7))
    else:
        every = product((32, 64, 128), sorted({max(least, 64), max(least, 128)}), (4, 8), (1, 2, 3, 5, 7))
    return [Tiling(*each) for each in every]


@dataclass(frozen=True)
class Launched:
    """Launches, and where their result will be."""

    launches: tuple[Launch, ...]
    out: torch.Tensor

    def run(self) -> None:
        for launch in self.launches:
            launch.run()


def launches_of(
    goal: Goal,
    inputs: Inputs,
    copy: int,
    tiling: Tiling | None,
    *,
    upcast: bool = False,
    architecture: str | None = None,
) -> Launched:
    """The launches of the goal's kernel, and of the merge after it. `tiling` None: that of the table."""
    starts = None if goal.kernel == "decode" else inputs.cu_seqlens_q
    mask = Mask(inputs.scale, True, None, 0.0, None, None)
    call = checked_call(
        inputs.query, inputs.k_cache, inputs.v_cache, inputs.tables[copy], inputs.seq_lens, starts, mask
    )
    wanted = ("decode", "merge") if goal.kernel == "decode" else ("prefill",)
    launches = attention_launches(call, Overrides(tiling, upcast=upcast), architecture)
    return Launched(tuple(each for each in launches if each.name in wanted), call.out)


def does_not_fit(goal: Goal, tiling: Tiling, architecture: str) -> str | None:
    """Why a tiling must not be used on a card, from its machine code: it spills, say. Needs no GPU.

    None also where the audit does not know the card: what does not fit there will not launch.
    """
    if architecture not in TARGETS:
        return None
    inputs = make(small(goal.rows()[0]), torch.device("cpu"))
    launch = launches_of(goal, inputs, 0, tiling, architecture=architecture).launches[0]
    try:
        problems = audit_launch(launch, architecture).problems()
    except Exception as error:  # the compiler gives up on some
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return "; ".join(problems) or None


def differs(
    goal: Goal,
    tiling: Tiling,
    device: torch.device,
    run: Callable[[Launch], None] = Launch.run,
    *,
    upcast: bool = False,
) -> str | None:
    """Why a tiling must not be used: its result is not within the rounding bound, for the sums that it makes."""
    inputs = make(small(goal.rows()[0]), device)
    launched = launches_of(goal, inputs, 0, tiling, upcast=upcast)
    launched.out.fill_(float("nan"))
    for launch in launched.launches:
        run(launch)
    problem = inputs.problem()
    model = triton_rounding(problem, (min(tiling.tile, SPLIT_SIZE),) * 2, SPLIT_SIZE, rounded_weights=not upcast)
    expected = paged_bound(problem, model)
    worst = float(rho(array_of(launched.out), expected.out, expected.out_bound).max())
    return None if worst <= 1 else f"rho {worst:.3g}"
