"""The device pool: blocks are handed out, shared and given back where the KV lies, without the host.

`pool` is what callers see, `state`, `outcomes` and `plan` are its words. On the CPU `loops` carry operations out row by
row, as the specification speaks of them; on a GPU `launches` of the kernels in `pagedkv.optimized.kernels.pool` do it
for all rows at once. Both leave the same state. On top of it: `decoding` is a decode step without the host, `exchange`
moves requests between a host manager and the pool, `mirror` lets the host see what was counted.
"""

from pagedkv.optimized.device.decoding import DecodeStep
from pagedkv.optimized.device.exchange import DeviceExchange
from pagedkv.optimized.device.mirror import CounterMirror, PoolCounters
from pagedkv.optimized.device.outcomes import RowOutcome
from pagedkv.optimized.device.plan import PoolPlan
from pagedkv.optimized.device.pool import DevicePool

__all__ = [
    "CounterMirror", "DecodeStep", "DeviceExchange", "DevicePool", "PoolCounters", "PoolPlan", "RowOutcome",
]  # fmt: skip
