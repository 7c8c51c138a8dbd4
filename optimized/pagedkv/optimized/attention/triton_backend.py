"""The Triton backend: runs the launches of `attend_launches` and `move_launches`."""

from torch import Tensor

from pagedkv.optimized.attention.arguments import AttentionCall
from pagedkv.optimized.attention.attend_launches import attention_launches
from pagedkv.optimized.attention.move_launches import copy_launch, write_launch


class TritonBackend:
    """See `pagedkv.optimized.attention.Backend`."""

    def attend(self, call: AttentionCall) -> None:
        """Fill `out` and `lse`: one launch, and one more to merge if there can be more than one split."""
        for launch in attention_launches(call):
            launch.run()

    def write_kv(self, rows: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor], slot_mapping: Tensor) -> None:
        """One launch for keys and values."""
        write_launch(rows, caches, slot_mapping).run()

    def copy_blocks(self, cache: Tensor, pairs: Tensor) -> None:
        """One launch a cache."""
        copy_launch(cache, pairs).run()
