"""An example of an audit of somebody else's kernel: vLLM's unified attention in Triton, beside ours for the same call.

    VLLM=/path/to/site-packages/vllm pagedkv audit --example docs.kernels.audit_vllm:launches --target sm_90

vLLM need not run: two of its files are loaded by path, what they import is replaced by the least that they need, and
their own host code says how the kernel is launched. Nothing of vLLM is part of this repository.
"""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch
import triton
import triton.language as tl
from pagedkv.conformance.adapters.attention.vllm_triton import OPS, KVQuantMode
from pagedkv.optimized.attention.shipped import Configuration, launch_for
from pagedkv.optimized.audit.recorder import recording_launches
from pagedkv.optimized.launch import Launch

GROUP, HEAD_DIM, PAGE, KV_HEADS, SPLITS = 8, 128, 16, 2, 16


def launches(target: str) -> list[Launch]:
    """A decode step in splits and a prefill of vLLM and of ours: bfloat16, group 8, head_dim 128, block size 16."""
    module = unified_attention_module(target)
    kernels, found = ("kernel_unified_attention", "reduce_segments"), list[Launch]()
    for name, tokens in (("decode in splits", 1), ("prefill", 64)):
        label = f"vLLM: {name} bfloat16 head_dim={HEAD_DIM} group={GROUP} block_size={PAGE}"
        with recording_launches(module, *kernels, configuration=label) as recorded:
            attend(module, tokens)
        ours = Configuration(name, "bfloat16", (HEAD_DIM, HEAD_DIM), GROUP, PAGE, "causal")
        found += [recorded[0], launch_for(ours, target)]  # what merges the splits is left out
    return found


def attend(module: ModuleType, tokens: int) -> None:
    """One call of vLLM's host code, two requests with so many query rows each; room for splits, should it want any."""
    query = torch.zeros(2 * tokens, KV_HEADS * GROUP, HEAD_DIM, dtype=torch.bfloat16)
    cache = torch.zeros(2, PAGE, KV_HEADS, HEAD_DIM, dtype=torch.bfloat16)
    starts = torch.arange(0, 2 * tokens + 1, tokens, dtype=torch.int32)
    lengths, table = torch.ones(2, dtype=torch.int32), torch.zeros(2, 65, dtype=torch.int32)
    parts = torch.zeros(2 * tokens, KV_HEADS * GROUP, SPLITS, HEAD_DIM)
    module.unified_attention(
        query, cache, cache, torch.empty_like(query), starts, tokens, lengths, 1024, 0.125, True, (-1, -1), table,
        0.0, None, None, None, seq_threshold_3D=64, num_par_softmax_segments=SPLITS, softmax_segm_output=parts,
        softmax_segm_max=parts[..., 0].contiguous(), softmax_segm_expsum=parts[..., 0].contiguous(),
    )  # fmt: skip


def unified_attention_module(target: str) -> ModuleType:
    """vLLM's module, with stand-ins for what it imports."""
    ops = Path(os.environ["VLLM"]) / "v1" / "attention" / "ops"
    platform = SimpleNamespace(
        fp8_dtype=lambda: torch.float8_e4m3fn,
        is_device_capability_family=lambda family: target == f"sm_{family}",
        is_rocm=lambda: target.startswith("gfx"),
        is_xpu=lambda: False,
    )
    for name in ("vllm", "vllm.v1", "vllm.v1.attention", OPS):
        stand_in(name)
    stand_in("vllm.envs", VLLM_BATCH_INVARIANT=False)
    stand_in("vllm.logger", init_logger=lambda name: None)
    stand_in("vllm.platforms", current_platform=platform)
    stand_in("vllm.triton_utils", tl=tl, triton=triton)
    stand_in("vllm.v1.kv_cache_interface", KVQuantMode=KVQuantMode)
    sys.modules["vllm"].envs = sys.modules["vllm.envs"]  # type: ignore[attr-defined]  # `import vllm.envs as envs`
    for name in ("triton_attention_helpers", "triton_unified_attention"):
        spec = importlib.util.spec_from_file_location(f"{OPS}.{name}", ops / f"{name}.py")
        assert spec
        assert spec.loader
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def stand_in(name: str, **attributes: object) -> None:
    """A module that has these attributes and nothing else."""
    sys.modules[name] = ModuleType(name)
    vars(sys.modules[name]).update(attributes)
