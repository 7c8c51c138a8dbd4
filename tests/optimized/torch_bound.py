"""The rounding bound, for tests that have one request at hand."""

from typing import Any

from torch import Tensor

from pagedkv.spec.attention_subject import RoundingModel
from pagedkv.spec.bound import Bound, bound, rho


def bound_of(q: Tensor, key: Tensor, value: Tensor, model: RoundingModel | None = None, **options: Any) -> Bound:
    """`options` as `pagedkv.spec.bound`; the model of the torch path, which sums a request in float32, unless told."""
    model = model or RoundingModel(tile=len(key), num_tiles=2)
    tensors = (part.float().numpy() for part in (q, key, value))
    return bound(*tensors, model=model, scale=q.shape[-1] ** -0.5, **options)


def is_close(out: Tensor, wanted: Tensor, exact: Bound) -> bool:
    """Whether `out` is `wanted` up to rounding."""
    return float(rho(out.float().numpy(), wanted.float().numpy(), exact.out_bound).max()) <= 1
