"""No public function waits for the device: torch raises where one would (`torch.cuda.set_sync_debug_mode`)."""

from collections.abc import Callable
from inspect import isfunction

import pytest
import torch
from torch import Tensor

from pagedkv.optimized import attention
from pagedkv.optimized.attention.prepared import prepare_attention
from tests.gpu.site import Site


def adapters(
    q: Tensor, k: Tensor, v: Tensor, tables: Tensor, lengths: Tensor, starts: Tensor
) -> dict[str, Callable[[], object]]:
    """Calls with the signatures of others."""
    rows = attention.csr_of(tables, lengths, 16)
    return {
        "flash_attn_with_kvcache": lambda: attention.flash_attn_with_kvcache(
            q[:2, None], k, v, cache_seqlens=lengths, block_table=tables, causal=True
        ),
        "flash_attn_varlen_func": lambda: attention.flash_attn_varlen_func(
            q,
            k,
            v,
            cu_seqlens_q=starts,
            seqused_k=lengths,
            block_table=tables,
            causal=True,
            max_seqlen_q=40,
            max_seqlen_k=512,
        ),
        "csr_of": lambda: attention.csr_of(tables, lengths, 16),
        "block_tables_of": lambda: attention.block_tables_of(*rows, block_size=16, max_blocks=32),
    }


def calls(device: torch.device) -> dict[str, Callable[[], object]]:
    """Calls by name; what stands before a space is the function."""
    caches = torch.randn(2, 64, 16, 2, 64, device=device).to(torch.float16)
    k, v = caches.unbind()
    tables = torch.arange(64, dtype=torch.int32, device=device).view(2, 32)
    lengths = torch.tensor([500, 17], dtype=torch.int32, device=device)
    query = torch.randn(42, 8, 64, device=device).to(torch.float16)
    starts = torch.tensor([0, 40, 42], dtype=torch.int32, device=device)
    heads = torch.rand(8, device=device)
    rows = torch.randn(4, 2, 64, device=device).to(torch.float16)
    slots = torch.tensor([3, -1, 700, 5], device=device)
    pairs = torch.tensor([[1, 2], [-1, 0], [5, 9]], dtype=torch.int32, device=device)
    options = {"window": 90, "softcap": 20.0, "alibi_slopes": heads, "sinks": heads, "return_lse": True}

    def attend(count: int, **given: object) -> Callable[[], object]:
        return lambda: attention.paged_attention(query[:count], k, v, tables, lengths, **given)  # type: ignore[arg-type]  # options of all kinds

    copier = attention.BlockCopier([k, v])
    prepared = prepare_attention(query, k, v, tables, lengths, cu_seqlens_q=starts)
    workspace = torch.empty(attention.workspace_size(query[:2], v, tables), device=device)

    def merge() -> tuple[Tensor, Tensor]:
        return attention.merge_attention(query.view(2, 21, 8, 64), torch.zeros(2, 21, 8, device=device))

    return {
        "paged_attention decode": attend(2),
        "paged_attention mixed": attend(42, cu_seqlens_q=starts),
        "paged_attention padded": attend(42, cu_seqlens_q=starts // 2),
        "paged_attention options": attend(42, cu_seqlens_q=starts, **options),
        "paged_attention one split": attend(2, split_size=512),
        "paged_attention many splits": attend(2, split_size=16),
        "paged_attention filling": attend(2, split_size="fill"),
        "paged_attention out": attend(2, out=torch.empty_like(query[:2])),
        "paged_attention workspace": attend(2, workspace=workspace),
        "paged_attention prepared": lambda: prepared(query, k, v),
        "paged_attention not causal": attend(42, cu_seqlens_q=starts, causal=False),
        "write_kv": lambda: attention.write_kv(rows, rows, k, v, slots),
        "copy_blocks": lambda: attention.copy_blocks([k, v], pairs),
        "copy_blocks prepared": lambda: copier(pairs),
        "gather_kv": lambda: attention.gather_kv(k, tables, starts, total=50),
        "gather_kv one request": lambda: attention.gather_kv(k, tables[0], 400),
        "merge_attention": merge,
    } | adapters(query, k, v, tables, lengths, starts)


@pytest.mark.parametrize("name", calls(torch.device("cpu")))
def test_a_call_does_not_wait_for_the_device(site: Site, name: str) -> None:
    call = calls(site.device)[name]
    call()  # compiles
    with site.no_waiting():
        call()
        call()


def test_no_public_function_is_left_out() -> None:
    """But for those that look at nothing on a device."""
    public = {name for name in attention.__all__ if isfunction(getattr(attention, name))}
    covered = {name.partition(" ")[0] for name in calls(torch.device("cpu"))}
    assert public - covered <= {"backend_for", "workspace_size", "prepare_attention"}


def test_waiting_is_noticed(site: Site) -> None:
    """Else the test above could not fail."""
    if site.name == "cpu":
        pytest.skip("nothing on the CPU waits")
    with site.no_waiting(), pytest.raises(RuntimeError, match="synchroniz"):
        torch.ones(1, device=site.device).item()
