"""One decode step of all rows of a pool, without the host: append, copy-on-write, KV write, attention.

Nothing here waits for the device, and all shapes are those of the pool, so that k steps can be captured as one CUDA
graph: what a step decides (who ends, who gets a block) stays on the device.
"""

from collections.abc import Sequence
from typing import Any, Final

from torch import Tensor

from pagedkv.optimized.arguments import integer
from pagedkv.optimized.attention import BlockCopier, paged_attention, write_kv
from pagedkv.optimized.device.plan import PoolPlan
from pagedkv.optimized.device.pool import DevicePool
from pagedkv.spec.words import Misuse


OPTIONS: Final = {
    "scale", "window", "softcap", "alibi_slopes", "sinks", "split_size", "workspace", "out", "backend",
}  # fmt: skip
"""Of `paged_attention`, those that say how to attend."""


class DecodeStep:
    """Steps of a model whose layers have these caches, each (num_blocks, block_size, num_kv_heads, dim), over the rows
    of a pool: row i of a batch is row i of the pool.

    `options` are those of `paged_attention` in `OPTIONS`; `window` is the pool's, unless a shorter one is given.
    Raises `Misuse` for caches of another form.

        step = DecodeStep(pool, k_caches, v_caches)
        plan = step.begin(where=active)                       # (num_rows,) bool, on the device
        for layer, ... in enumerate(model):
            out = step.attend(layer, query, key, value)       # (num_rows, num_q_heads, value_dim)
    """

    def __init__(
        self, pool: DevicePool, k_caches: Sequence[Tensor], v_caches: Sequence[Tensor], **options: Any
    ) -> None:
        if len(k_caches) != len(v_caches):
            raise Misuse("v_caches", f"{len(v_caches)} caches", f"{len(k_caches)}, as many as k_caches")
        for name, caches in (("k_caches", k_caches), ("v_caches", v_caches)):
            for i, cache in enumerate(caches):
                wanted = (pool.shape.num_blocks, pool.shape.block_size)
                if tuple(cache.shape[:2]) != wanted:
                    raise Misuse(f"{name}[{i}].shape", tuple(cache.shape), f"{wanted} first, as the pool has")
        if pool.shape.sink_blocks:
            raise Misuse("pool.sink_tokens", pool.shape.sink_tokens, "0: attention keeps no positions behind a window")
        self.pool, self.k_caches, self.v_caches = pool, tuple(k_caches), tuple(v_caches)
        distinct = {id(cache): cache for cache in (*k_caches, *v_caches)}
        self._copy = BlockCopier(list(distinct.values()))
        window = options.get("window", pool.shape.sliding_window)
        most = pool.shape.sliding_window
        if most is not None and (window is None or window > most):
            raise Misuse("window", window, f"at most {most}: what the pool's window has left behind is gone")
        if unknown := options.keys() - OPTIONS:
            raise Misuse("options", sorted(unknown), f"some of {', '.join(sorted(OPTIONS))}")
        self._options = {**options, "window": window}
        self._plan: PoolPlan | None = None
        self._attended = False

    def begin(self, where: Tensor | None = None) -> PoolPlan:
        """A new step: what a sliding window has left behind is given back, then each row that is in use and not left
        out by `where` gets a position more. Blocks that this step writes into and that have another owner are copied
        in all caches first.

        The KV of all positions up to here has been written. Rows that are not `OK` see nothing in this step: attention
        gives zeros for them.
        """
        if self._plan is not None and not self._attended:
            allowed = "attend for each layer first: the positions of the step that was begun have no KV yet"
            raise Misuse("begin", "twice", allowed)
        self._attended = False
        if self.pool.shape.sliding_window is not None:
            self.pool.release_window(None, where=where)
        self._plan = self.pool.append(None, where=where)
        self._copy(self._plan.copies)
        return self._plan

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Write key and value (num_rows, num_kv_heads, dim) of the new positions to the caches of a layer, and attend
        with query (num_rows, num_q_heads, head_dim) over all positions of each row."""
        if self._plan is None:
            raise Misuse("attend", "before begin", "begin, then attend for each layer")
        self._attended = True
        layer = integer("layer", layer, 0, len(self.k_caches) - 1)
        k_cache, v_cache = self.k_caches[layer], self.v_caches[layer]
        write_kv(key, value, k_cache, v_cache, self._plan.slot_mapping)
        out = paged_attention(query, k_cache, v_cache, self.pool.block_tables, self._plan.seq_lens, **self._options)
        assert isinstance(out, Tensor)
        return out
