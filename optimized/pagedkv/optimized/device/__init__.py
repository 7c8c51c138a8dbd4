"""The device pool: blocks are handed out, shared and given back where the KV lies, without the host.

`pool` is what callers see, `state` and `outcomes` are its words. On the CPU `loops` carry operations out row by row, as
the specification speaks of them; on a GPU `launches` of the kernels in `pagedkv.optimized.kernels.pool` do it for all
rows at once. Both leave the same state.
"""

from pagedkv.optimized.device.outcomes import RowOutcome
from pagedkv.optimized.device.plan import PoolPlan
from pagedkv.optimized.device.pool import DevicePool

__all__ = ["DevicePool", "PoolPlan", "RowOutcome"]
