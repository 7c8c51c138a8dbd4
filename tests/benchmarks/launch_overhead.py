"""Where the host's time goes in a decode call of the Triton path, without a GPU: see `no_device`.

`python -m tests.benchmarks.launch_overhead` prints a table in microseconds: of each part the shortest of many short
rounds, in which the parts take turns, so that a machine under load slows all of them alike.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from pagedkv.optimized.attention import attend, prepared
from pagedkv.optimized.attention.arguments import Mask
from pagedkv.optimized.attention.attend_launches import attention_launches
from pagedkv.optimized.attention.prepared import prepare_attention
from pagedkv.optimized.attention.triton_backend import TritonBackend
from tests.benchmarks.no_device import IdleDevice, idle_device

BATCH, HEADS, KV_HEADS, DIM, SIZE, CONTEXT = 32, 32, 8, 128, 16, 4096
ROUNDS, CALLS = 400, 8


@contextmanager
def parts() -> Iterator[tuple[IdleDevice, dict[str, Callable[[], object]]]]:
    """What to time, by name: one decode call over splits, so two launches, and what it is made of."""
    both = torch.zeros(64, 2, SIZE, KV_HEADS, DIM, dtype=torch.bfloat16)
    query, (k_cache, v_cache) = torch.zeros(BATCH, HEADS, DIM, dtype=torch.bfloat16), both.unbind(1)
    tables = torch.zeros(BATCH, CONTEXT // SIZE, dtype=torch.int32)
    lengths, out = torch.ones(BATCH, dtype=torch.int32), torch.empty_like(query)
    read = (query, k_cache, v_cache, tables, lengths)
    mask = Mask(DIM**-0.5, True, None, 0.0, None, None)
    on_triton = [patch.object(module, "backend_for", lambda *_: TritonBackend()) for module in (attend, prepared)]
    with idle_device() as device, on_triton[0], on_triton[1]:
        call = attend.checked_call(*read, None, mask, out)
        decode, merge = attention_launches(call)
        step = prepare_attention(*read)
        yield (
            device,
            {
                "checks": lambda: attend.checked_call(*read, None, mask, out),
                "launches as values": lambda: attention_launches(call),
                "Triton's run, decode": decode.run,
                "Triton's run, merge": merge.run,
                "paged_attention": lambda: attend.paged_attention(*read, out=out),
                "the operator": lambda: torch.ops.pagedkv.paged_attention_out(*read, out=out),
                "prepare_attention": lambda: prepare_attention(*read),
                "a prepared call": lambda: step(query, k_cache, v_cache, out),
            },
        )


@cache
def dispatching() -> dict[str, Callable[[], object]]:
    """A call that does nothing, with six tensors, one of them written to: made directly, and in two ways by torch."""

    def nothing(q: Tensor, k: Tensor, v: Tensor, tables: Tensor, lengths: Tensor, out: Tensor) -> None:
        return None

    library: Any = torch.library.Library("pagedkv_bench", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch's own
    library.define("defined(Tensor q, Tensor k, Tensor v, Tensor tables, Tensor lengths, Tensor(a!) out) -> ()")
    library.impl("defined", nothing, "CompositeExplicitAutograd")
    custom = torch.library.custom_op("pagedkv_bench::custom", nothing, mutates_args=("out",))
    tensors = [torch.zeros(2) for _ in range(6)]
    defined = torch.ops.pagedkv_bench.defined.default
    return {
        "nothing": lambda: nothing(*tensors),
        "nothing, by Library.define": lambda: (defined(*tensors), library),  # which undoes its work when it is gone
        "nothing, by custom_op": lambda: custom(*tensors),
    }


def measured(rounds: int = ROUNDS, calls: int = CALLS) -> dict[str, float]:
    """Microseconds of each part."""
    with parts() as (_, named):
        return shortest({**named, **dispatching()}, rounds, calls)


def shortest(named: dict[str, Callable[[], object]], rounds: int, calls: int) -> dict[str, float]:
    """Microseconds a call of each, in its shortest round."""
    best = dict.fromkeys(named, float("inf"))
    for part in named.values():  # the first call of each compiles
        part()
    for _ in range(rounds):
        for name, part in named.items():
            start = time.perf_counter()
            for _ in range(calls):
                part()
            best[name] = min(best[name], (time.perf_counter() - start) / calls * 1e6)
    return best


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    times = measured()
    print("| part | µs |\n|---|---|")
    for name, us in times.items():
        print(f"| {name} | {us:.1f} |")
    print(f"\npaged_attention / a prepared call: {times['paged_attention'] / times['a prepared call']:.1f}")
    print(f"the operator / paged_attention: {times['the operator'] / times['paged_attention']:.2f}")


if __name__ == "__main__":
    main()
