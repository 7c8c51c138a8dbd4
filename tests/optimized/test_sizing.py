"""How many blocks fit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagedkv.optimized.sizing import num_blocks_for
from pagedkv.spec import Misuse

SIZES = {"float32": 4, "bfloat16": 2, "torch.float16": 2, "float8_e4m3fn": 1, "torch.uint8": 1, np.float16: 2}


@given(
    memory_bytes=st.integers(0, 2**40),
    shape=st.tuples(st.integers(1, 64), st.integers(1, 8), st.integers(1, 8), st.integers(1, 256)),
    dtype=st.sampled_from(list(SIZES)),
)
def test_as_many_as_fit_and_no_more(memory_bytes: int, shape: tuple[int, int, int, int], dtype: Any) -> None:
    block_size, layers, heads, dim = shape
    count = num_blocks_for(memory_bytes, block_size, layers, heads, dim, dtype)
    block_bytes = 2 * layers * heads * dim * SIZES[dtype] * block_size
    assert count * block_bytes <= memory_bytes < (count + 1) * block_bytes


@pytest.mark.parametrize("argument", ["memory_bytes", "block_size", "num_layers", "num_kv_heads", "head_dim", "dtype"])
@pytest.mark.parametrize("value", [-1, 2.5, True, "x", None])
def test_misuse_names_the_argument(argument: str, value: object) -> None:
    arguments: dict[str, Any] = {
        "memory_bytes": 2**20, "block_size": 16, "num_layers": 2, "num_kv_heads": 2, "head_dim": 8, "dtype": "float16",
    }  # fmt: skip
    with pytest.raises(Misuse) as raised:
        num_blocks_for(**{**arguments, argument: value})
    assert raised.value.argument == argument
