"""Nobody is timed who computes something else: each contender against the specification, on a small launch of its kind.

The gate is the rounding bound at 1, for a model of rounding that covers any of them: weights rounded to the format of
the values, and partial results merged through their logarithms.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from pagedkv.optimized.attention.subject import array_of
from pagedkv.spec.attention_subject import RoundingModel
from pagedkv.spec.bound import Bound, paged_bound, rho
from pagedkv.spec.rounding import UNIT_ROUNDOFF
from pagedkv.spec.words import ceil_div
from tests.benchmarks.gpu.contenders import Attend, Contender
from tests.benchmarks.gpu.grid import Row
from tests.benchmarks.gpu.inputs import Inputs, make
from tests.benchmarks.gpu.shapes import Shape

LENGTH = {"decode": 700, "prefill": 130, "chunked": 200, "mixed": 300}
"""Past a tile of 128 and, of decode, past a split of 512; a page of any size is partly filled."""
ROWS = 40
"""Of what is neither a single row nor the whole prompt, at the most."""


def small(row: Row) -> Shape:
    """The same launch with one request from each end, short, and two KV heads at the most."""
    shape, length = row.shape, LENGTH[row.kind]
    ends = ((shape.lengths[0], shape.rows[0]), (shape.lengths[-1], shape.rows[-1]))
    lengths = tuple(min(n, length) for n, _ in ends)
    rows = tuple(min(n, length) if n == m else min(m, ROWS, length) for n, m in ends)
    return replace(shape, lengths=lengths, rows=rows, num_kv_heads=min(2, shape.num_kv_heads))


def any_rounding(shape: Shape) -> RoundingModel:
    """Tiles of 16 to 256 tokens, splits as short as a tile."""
    return RoundingModel(
        tile=256,
        num_tiles=2 * ceil_div(max(shape.lengths), 16) + 2,
        u_accumulate=2.0**-22,
        u_weights=0.0 if shape.dtype == "float32" else UNIT_ROUNDOFF[shape.dtype],
        lse_merge=True,
    )


@dataclass
class Checker:
    """Remembers what was found, and what the specification says, by shape."""

    device: torch.device
    _expected: dict[Shape, tuple[Inputs, Bound]] = field(default_factory=dict)
    _found: dict[tuple[str, Shape], str | None] = field(default_factory=dict)

    def objection(self, contender: Contender, row: Row) -> str | None:
        """Why a contender must not be timed on rows like this one; None if it may."""
        shape = small(row)
        key = (contender.name, shape)
        if key not in self._found:
            inputs, expected = self._of(shape)
            self._found[key] = judged(contender, inputs, expected)
        return self._found[key]

    def _of(self, shape: Shape) -> tuple[Inputs, Bound]:
        if shape not in self._expected:
            inputs = make(shape, self.device, copies=2)
            self._expected[shape] = inputs, paged_bound(inputs.problem(), any_rounding(shape))
        return self._expected[shape]


def judged(contender: Contender, inputs: Inputs, expected: Bound) -> str | None:
    """Whatever a contender raises for a shape is its reason; a result beyond the bound is one, too."""
    try:
        worst = worst_rho(contender.prepare(inputs), expected)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None if worst <= 1 else f"computes something else: rho {worst:.3g}"


def worst_rho(calls: Sequence[Attend], expected: Bound) -> float:
    """The first copy against the specification."""
    out = array_of(calls[0]().contiguous())
    return float(np.max(rho(out.reshape(expected.out.shape), expected.out, expected.out_bound), initial=0.0))
