"""The contenders, each behind one small adapter. A package that is not installed costs its lines, and nothing else."""

from tests.benchmarks.gpu.contenders.common import Attend, Contender, Unserved
from tests.benchmarks.gpu.contenders.flash_attn import FlashAttention
from tests.benchmarks.gpu.contenders.flashinfer import FlashInfer
from tests.benchmarks.gpu.contenders.flex import Flex
from tests.benchmarks.gpu.contenders.ours import Ours
from tests.benchmarks.gpu.contenders.torch_ops import Sdpa, Varlen
from tests.benchmarks.gpu.contenders.vllm import VllmTriton

__all__ = ["Attend", "Contender", "Unserved", "contenders"]


def contenders() -> list[Contender]:
    """Ours first, then the others, in the order in which they are timed."""
    return [
        Ours(),
        Ours("fill"),
        Varlen(paged=True),
        FlashInfer(),
        FlashAttention(),
        VllmTriton(),
        Varlen(paged=False),
        Sdpa(),
        Flex(),
    ]
