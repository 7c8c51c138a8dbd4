"""Swap space: blocks saved in host memory and brought back, byte for byte, beside the computation."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import check_integer, require
from pagedkv.optimized.attention.backends import BackendName, backend_for
from pagedkv.optimized.attention.debug import check_pairs
from pagedkv.optimized.attention.moves import check_pools
from pagedkv.spec.words import Misuse, ceil_div

STAGING_BYTES: Final = 32 << 20
"""What the device holds of blocks on their way, unless one block of all caches is larger."""
ALIGNMENT: Final = 16
"""Where the part of each cache in a saved block begins, in bytes: what the widest access needs."""

Pairs: TypeAlias = Any
"""(num_pairs, 2) integers on the host: a sequence of pairs, a NumPy array or a tensor."""


class Transfer:
    """A transfer that was begun."""

    def __init__(self, event: torch.cuda.Event | None = None, device: torch.device | None = None) -> None:
        """`event`: what its stream on `device` records at its end; None on the CPU, where it has ended."""
        self.event, self.device = event, device

    def wait(self) -> None:
        """What the current stream is given from here on begins after its end. The host does not wait."""
        if self.event is not None:
            torch.cuda.current_stream(self.device).wait_event(self.event)

    def synchronize(self) -> None:
        """The host waits for its end."""
        if self.event is not None:
            self.event.synchronize()

    def is_done(self) -> bool:
        """Whether it has ended."""
        return self.event is None or bool(self.event.query())  # type: ignore[no-untyped-call]  # torch's has no types


class SwapSpace:
    """`num_blocks` blocks of host memory for the blocks of some caches, and the way there and back.

    `caches`: as `BlockCopier` takes them; the blocks of all of them that have one number are one block here. The host
    memory is pinned where the caches lie on a GPU. (Swapping: Kwon et al., SOSP 2023, §4.5.)

    Transfers run on a stream of their own, in the order in which they were begun: a block of swap space may be filled
    again as soon as its return was begun. A transfer begins after all that the current stream was given before; the
    current stream goes on meanwhile. Before it writes to blocks that are being saved, or touches blocks that are being
    brought back, call `wait` of the transfer.

    On its way a block is gathered from all caches into device memory (`STAGING_BYTES`) by one launch, and crosses to
    the host as one run of bytes. A copy for each cache would cost the host more time than the bytes take: 0.5 µs, more
    than the transfer below 32 KiB, by the measurements in vLLM's pull request 48434.
    """

    def __init__(self, caches: Sequence[Tensor], num_blocks: int, *, backend: BackendName | None = None) -> None:
        self.caches = check_pools(caches)
        require(len(self.caches) > 0, "caches", caches, "at least one cache")
        check_integer("num_blocks", num_blocks, 0, "an integer >= 0")
        self.num_blocks, device = int(num_blocks), self.caches[0].device
        places = [0]
        for cache in self.caches:
            places.append(places[-1] + ceil_div(cache[0].numel() * cache.itemsize, ALIGNMENT) * ALIGNMENT)
        rows = max(1, min(self.num_blocks, STAGING_BYTES // places[-1]))
        self.stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's has no types
        self._host = torch.empty(self.num_blocks, places[-1], dtype=torch.uint8, pin_memory=self.stream is not None)
        self._staging = torch.empty(rows, places[-1], dtype=torch.uint8, device=device)
        parts = tuple(part_of(self._staging, place, cache) for place, cache in zip(places, self.caches, strict=False))
        chosen = backend_for(device, backend)
        self._save, self._restore = chosen.copier(self.caches, parts), chosen.copier(parts, self.caches)
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(device))  # what it was allocated after
            for tensor in (*self.caches, self._staging):
                tensor.record_stream(self.stream)  # freed in the middle of a transfer, it is given away after it

    @property
    def memory_bytes(self) -> int:
        """Bytes of host memory."""
        return self._host.numel()

    def swap_out(self, pairs: Pairs) -> Transfer:
        """Save blocks: `pairs` (num_pairs, 2) on the host of block, block of swap space, as `BlockManager.preempt`
        gives them. Blocks of swap space are distinct. Raises `Misuse`, and then nothing is saved.
        """
        return self._run(check_host_pairs(pairs, len(self.caches[0]), self.num_blocks), self._out)

    def swap_in(self, pairs: Pairs) -> Transfer:
        """Bring blocks back: `pairs` (num_pairs, 2) on the host of block of swap space, block, as
        `BlockManager.resume` gives them. Blocks are distinct. Raises `Misuse`, and then nothing is written.
        """
        return self._run(check_host_pairs(pairs, self.num_blocks, len(self.caches[0])), self._in)

    def _run(self, pairs: list[list[int]], move: Callable[[list[list[int]]], None]) -> Transfer:
        """Move the pairs, as many at a time as the staging memory holds."""
        rows = len(self._staging)
        chunks = [pairs[first : first + rows] for first in range(0, len(pairs), rows)]
        if self.stream is None:
            for chunk in chunks:
                move(chunk)
            return Transfer()
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        with torch.cuda.stream(self.stream):
            for chunk in chunks:
                move(chunk)
            return Transfer(self.stream.record_event(), self.stream.device)

    def _out(self, pairs: list[list[int]]) -> None:
        pairs = sorted(pairs, key=lambda pair: pair[1])  # so that neighbours cross together
        self._save(self._on_device([(block, row) for row, (block, _) in enumerate(pairs)]))
        for row, saved, length in runs([saved for _, saved in pairs]):
            self._host[saved : saved + length].copy_(self._staging[row : row + length], non_blocking=True)

    def _in(self, pairs: list[list[int]]) -> None:
        pairs = sorted(pairs)
        for row, saved, length in runs([saved for saved, _ in pairs]):
            self._staging[row : row + length].copy_(self._host[saved : saved + length], non_blocking=True)
        self._restore(self._on_device([(row, block) for row, (_, block) in enumerate(pairs)]))

    def _on_device(self, pairs: list[tuple[int, int]]) -> Tensor:
        """From pinned memory, which torch keeps until the transfer is over."""
        tensor = torch.tensor(pairs, dtype=torch.int64, pin_memory=self.stream is not None)
        return tensor.to(self._staging.device, non_blocking=True)


def part_of(memory: Tensor, place: int, cache: Tensor) -> Tensor:
    """The bytes of each row from `place` on, as blocks like those of `cache`."""
    size = cache[0].numel() * cache.itemsize
    return memory[:, place : place + size].view(cache.dtype).view(len(memory), *cache.shape[1:])


def runs(blocks: list[int]) -> Iterator[tuple[int, int, int]]:
    """(place in the list, first block, length) of each stretch in which every block is one more than the one before.

    >>> list(runs([3, 4, 5, 9, 9]))
    [(0, 3, 3), (3, 9, 1), (4, 9, 1)]
    """
    start = 0
    for place in range(1, len(blocks) + 1):
        if place == len(blocks) or blocks[place] != blocks[place - 1] + 1:
            yield start, blocks[start], place - start
            start = place


def check_host_pairs(pairs: Pairs, num_sources: int, num_destinations: int) -> list[list[int]]:
    """Pairs that exist, with distinct destinations."""
    allowed = "(num_pairs, 2) integers on the host"
    if isinstance(pairs, Tensor):
        require(pairs.device.type == "cpu", "pairs.device", str(pairs.device), "cpu: copies are begun by the host")
        pairs = pairs.numpy()
    try:
        array = np.asarray(pairs)
    except ValueError as error:  # rows of different lengths
        raise Misuse("pairs", pairs, allowed) from error
    if array.size == 0:
        return []
    fits = array.ndim == 2 and array.shape[1] == 2 and array.dtype.kind in "iu"
    require(fits, "pairs", pairs, allowed)
    tensor = torch.from_numpy(array.astype(np.int64))
    require(bool((tensor >= 0).all()), "pairs", tensor.tolist(), "blocks >= 0")
    check_pairs(tensor, num_sources, num_destinations, apart=False)
    listed: list[list[int]] = tensor.tolist()
    return listed
