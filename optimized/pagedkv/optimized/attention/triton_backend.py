"""The Triton backend: runs the launches of `attend_launches`, `merge_launches` and `move_launches`."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from pagedkv.optimized.attention import debug
from pagedkv.optimized.attention.arguments import AttentionCall
from pagedkv.optimized.attention.attend_launches import attention_launches
from pagedkv.optimized.attention.backends import Copier, made_current
from pagedkv.optimized.attention.merge_launches import merge_attention_launch
from pagedkv.optimized.attention.move_launches import copy_groups, copy_launch, gather_launch, write_launch
from pagedkv.optimized.launch import Launch


class TritonBackend:
    """See `pagedkv.optimized.attention.Backend`."""

    def attend(self, call: AttentionCall) -> None:
        """Fill `out` and `lse` by up to three launches: decode, merge and prefill."""
        if debug.DEBUG:
            debug.check_call(call)
        for launch in self.launches(call):
            self.launch(launch)

    def launches(self, call: AttentionCall) -> list[Launch]:
        """What `attend` launches."""
        return attention_launches(call)

    def write_kv(self, rows: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor], slot_mapping: Tensor) -> None:
        """One launch for keys and values."""
        if debug.DEBUG:
            debug.check_slots(slot_mapping, caches[0].shape[0] * caches[0].shape[1])
        self.launch(write_launch(rows, caches, slot_mapping))

    def copier(self, sources: Sequence[Tensor], destinations: Sequence[Tensor]) -> Copier:
        """One launch for all caches that lie alike."""
        groups = copy_groups(sources, destinations)

        def copy(pairs: Tensor) -> None:
            if debug.DEBUG:
                debug.check_pairs(pairs, len(sources[0]), len(destinations[0]), apart=sources is destinations)
            for group in groups:
                self.launch(copy_launch(group, pairs))

        return copy

    def gather(
        self, cache: Tensor, block_tables: Tensor, cu_seqlens: Tensor, starts: Tensor | None, out: Tensor
    ) -> None:
        """One launch."""
        if debug.DEBUG:
            debug.check_gather(cache, block_tables, cu_seqlens, starts, len(out))
        self.launch(gather_launch(cache, block_tables, cu_seqlens, starts, out))

    def merge(self, outs: Tensor, lses: Tensor, out: Tensor, lse: Tensor) -> None:
        """One launch."""
        self.launch(merge_attention_launch(outs, lses, out, lse))

    def launch(self, launch: Launch) -> Any:
        """Run it; tests interpret it instead. See `Launch.run`."""
        with made_current(launch.args[0].device):
            return launch.run()
