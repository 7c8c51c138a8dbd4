"""The compiled backend of the CPU as a whole: the same bits in any number of threads, compiled once."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from pagedkv.optimized import copy_blocks, gather_kv, merge_attention, paged_attention, write_kv
from pagedkv.optimized.attention.backends import backend_for
from pagedkv.optimized.cpu import backend, items, moves, planning, warmup
from pagedkv.optimized.cpu.simd import WIDTH
from pagedkv.spec import Misuse
from tests.optimized.gather_laws import same_bits

FUNCTIONS: Final[dict[str, Any]] = {
    name: getattr(module, name)
    for module, names in (
        (backend, ("whole_rows", "scratch_size", "record_size")),
        (planning, ("visible_bounds", "plan_work")),
        (items, ("work_through", "merge_through")),
        (moves, ("are_distinct", "write_rows", "copy_pairs", "gather_rows", "merge_rows")),
    )
    for name in names
}
"""What is called from outside of compiled code, each with arguments of one kind."""


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def mixed(dtype: torch.dtype = torch.bfloat16, seed: int = 0, **options: Any) -> dict[str, Any]:
    """A batch of decodes, drafts to verify, and chunks of prompts, of which some begin with the same blocks."""
    generator = torch.Generator().manual_seed(seed)
    lengths, rows = [700, 1, 700, 330, 64, 512, 0, 90], [1, 1, 3, 20, 1, 16, 1, 90]
    tables = torch.randperm(8 * 88, generator=generator).int().view(8, 88)
    tables[2], tables[5, :70] = tables[0], tables[0, :70]
    caches = [torch.randn(8 * 88, 8, 2, dim, generator=generator).to(dtype) for dim in (48, 80)]
    return {
        "query": torch.randn(sum(rows), 6, 48, generator=generator).to(dtype),
        "k_cache": caches[0], "v_cache": caches[1], "block_tables": tables,
        "seq_lens": torch.tensor(lengths, dtype=torch.int32),
        "cu_seqlens_q": torch.tensor([0, *rows], dtype=torch.int32).cumsum(0).int(),
        "backend": "numba", "split_size": 64, "return_lse": True, **options,
    }  # fmt: skip


def attend(batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
    out, lse = paged_attention(**batch)
    assert isinstance(out, Tensor)
    return out, lse


def same(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> bool:
    return all(same_bits(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("options", [{}, {"window": 100, "softcap": 5.0}, {"causal": False}], ids=str)
def test_the_number_of_threads_changes_no_bit(options: dict[str, Any]) -> None:
    results = []
    for count in (1, 2, 3, 8):
        torch.set_num_threads(count)
        results.append(attend(mixed(**options)))
    assert all(same(results[0], other) for other in results[1:])


def test_nor_does_it_of_what_is_moved() -> None:
    rows, slots = torch.randn(3000, 4, 128), torch.randperm(3008)[:3000]
    pairs, ends = torch.randperm(376)[:200].view(-1, 2), torch.tensor([0, 1000, 2001], dtype=torch.int32)
    tables, moved = torch.randperm(376)[:252].view(2, 126).int(), []
    for count in (1, 3):
        torch.set_num_threads(count)
        caches = [torch.zeros(376, 8, 4, 128, dtype=torch.float16) for _ in range(2)]
        write_kv(rows, -rows, caches[0], caches[1], slots, backend="numba")
        copy_blocks(caches, pairs, backend="numba")
        parts = gather_kv(caches[0], tables, ends, total=2001, backend="numba")[None].expand(3, -1, -1, -1)
        out, lse = merge_attention(parts, rows[:2001, :, :3].permute(2, 0, 1), backend="numba")
        moved.append([*caches, out, lse])
    assert all(same_bits(a, b) for a, b in zip(*moved, strict=True))


@pytest.mark.parametrize("dim", [128, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_written_past_the_caches_is_the_same(
    dtype: torch.dtype, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As much of a large move is: with rows that are whole vectors, and with others, at whole vectors and between."""
    monkeypatch.setattr(backend, "STREAMED", 0)
    rows, slots = torch.randn(600, 4, dim).to(dtype), torch.randperm(640)[:600]
    pairs, ends = torch.randperm(80)[:40].view(-1, 2), torch.tensor([0, 300, 501], dtype=torch.int32)
    tables, moved = torch.randperm(80).view(2, 40).int(), []
    for name in ("numba", "torch"):
        memory = torch.zeros(2, 80 * 8 * 4 * dim + 1, dtype=dtype)
        caches = [memory[i, i : i + 80 * 8 * 4 * dim].view(80, 8, 4, dim) for i in range(2)]
        write_kv(rows, rows.flip(0), caches[0], caches[1], slots, backend=name)
        copy_blocks(caches, pairs, backend=name)
        moved.append([memory, *(gather_kv(cache, tables, ends, total=501, backend=name) for cache in caches)])
    assert all(same_bits(a, b) for a, b in zip(*moved, strict=True))


def test_a_shared_prefix_changes_no_bit() -> None:
    """The same contents in private blocks; no two requests are read together then."""
    batch = mixed()
    tables = batch["block_tables"]
    private = torch.arange(tables.numel(), dtype=torch.int32).view_as(tables)
    keys, values = (batch[name][tables.flatten()] for name in ("k_cache", "v_cache"))
    assert same(attend(batch), attend(batch | {"k_cache": keys, "v_cache": values, "block_tables": private}))


@pytest.mark.parametrize("options", [{}, {"window": 100}, {"window": 30, "split_size": 16}], ids=str)
def test_a_request_alone_has_the_same_bits(options: dict[str, Any]) -> None:
    """Also where windows begin in different spans, and records of some rows lie beside those of others."""
    batch = mixed(**options)
    out, lse = attend(batch)
    ends = batch["cu_seqlens_q"].tolist()
    for r, (first, end) in enumerate(pairwise(ends)):
        alone = {
            "query": batch["query"][first:end], "block_tables": batch["block_tables"][r : r + 1],
            "seq_lens": batch["seq_lens"][r : r + 1], "cu_seqlens_q": torch.tensor([0, end - first], dtype=torch.int32),
        }  # fmt: skip
        assert same((out[first:end], lse[first:end]), attend({**batch, **alone}))


def test_calls_side_by_side_do_not_meet() -> None:
    batches = [mixed(seed=seed, dtype=dtype) for seed, dtype in enumerate((torch.float32, torch.float16) * 4)]
    expected = [attend(batch) for batch in batches]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(attend, batches * 3))
    assert all(same(a, b) for a, b in zip(found, expected * 3, strict=True))


def test_nothing_is_compiled_twice() -> None:
    """Whatever the shapes, dtypes, strides and options are."""
    warmup()
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        batch = mixed(dtype, sinks=torch.randn(6), alibi_slopes=torch.rand(12)[::2])
        attend(batch)
        attend(batch | {"query": batch["query"][:8], "cu_seqlens_q": None, "window": 5})
        key = torch.randn(4, 2, 48)
        write_kv(key.to(dtype), torch.zeros(4, 2, 80), batch["k_cache"], batch["v_cache"], torch.arange(8)[::2])
        copy_blocks([batch["k_cache"]], torch.tensor([[1, 2]], dtype=torch.int32))
        gather_kv(batch["v_cache"].transpose(1, 2), batch["block_tables"][0, :1], 2)
    assert {name: len(function.signatures) for name, function in FUNCTIONS.items()} == dict.fromkeys(FUNCTIONS, 1)


def test_memory_of_calls_is_kept_and_grows() -> None:
    """Up to a limit; what is given lies inside of what lives, from a cache line on."""
    rooms = backend.Rooms()
    for size in (1000, 500, 10**6, 10**6 + 1, backend.KEPT - 64, backend.KEPT + 1):
        for each in (size, max(0, rooms.memory.nbytes - 64), rooms.memory.nbytes):
            before = rooms.memory
            memory = rooms.take(each)
            assert memory is before or before.nbytes < each + 64
            begin, place = memory.ctypes.data, backend.begin_of(memory)
            assert place % 64 == 0
            assert begin <= place <= place + each <= begin + memory.nbytes
            other = rooms.take(64)  # by a call in the midst of this one
            assert other is not memory
            rooms.give_back(other)
            rooms.give_back(memory)
    assert backend.KEPT - 64 <= rooms.memory.nbytes <= backend.KEPT


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it in another process."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, filter(None, sys.path))), **environment}
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)


LOGGING: Final = "import logging; logging.basicConfig(format='%(message)s')\n"
ATTEND: Final = """
import torch
from pagedkv.optimized import paged_attention
def attend(**options):
    cache, tables = torch.ones(2, 4, 1, 8), torch.zeros(1, 2, dtype=torch.int32)
    return paged_attention(torch.ones(1, 1, 8), cache, cache, tables, torch.tensor([5], dtype=torch.int32), **options)
"""


def test_without_numba_it_is_torch_and_that_is_said_once() -> None:
    code = (
        "import sys; sys.modules['numba'] = None\nimport logging; logging.basicConfig(format='%(message)s')\n" + ATTEND
    )
    done = python(code + "attend(); attend(); print(attend().sum())")
    assert done.stdout == "tensor(8.)\n"
    assert done.stderr.count("attention on the CPU is torch's") == 1
    assert 'pip install "pagedkv[cpu]"' in done.stderr
    named = python(code + "attend(backend='numba')")
    assert "ModuleNotFoundError" in named.stderr
    assert 'pip install "pagedkv[cpu]"' in named.stderr
    assert python(code + "attend(backend='torch')").stderr.count("CPU") == 0


def test_so_is_that_it_compiles(tmp_path: Any) -> None:
    """By the first call, if nobody has called `warmup`; the next process finds it."""
    code = LOGGING + ATTEND + "attend(); attend()"
    said = [python(code, NUMBA_CACHE_DIR=str(tmp_path)).stderr for _ in range(2)]
    assert [text.count("compiling attention on the CPU") for text in said] == [1, 0]


@pytest.mark.parametrize("team", [True, False])
def test_a_child_process_starts_threads_of_its_own(team: bool) -> None:
    """By OpenMP in the parent, or by our own in both."""
    code = (
        ATTEND
        + ("" if team else "from pagedkv.optimized.cpu import threads; threads.openmp = lambda: None")
        + """
import os, sys
torch.set_num_threads(2)
cache, tables = torch.randn(64, 64, 2, 64), torch.arange(64, dtype=torch.int32)[None]
def several():
    return paged_attention(torch.ones(1, 4, 64), cache, cache, tables, torch.tensor([4096], dtype=torch.int32))
expected = several()
sys.stdout.flush()
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(several(), expected) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    done = python(code)
    assert done.returncode == 0, done.stderr


def test_it_serves_the_cpu_alone() -> None:
    with pytest.raises(Misuse, match=r"backend.*numba"):
        backend_for(torch.device("meta"), "numba")


NARROW: Final = """
from pagedkv.conformance.attention import Configuration, run
from pagedkv.optimized.attention.subject import OptimizedAttention
from pagedkv.optimized.cpu import backend
from pagedkv.optimized.cpu.simd import HAS_DOT, WIDTH
from tests.optimized.cpu_pairs import pairs_anywhere
everything = ("window", "softcap", "alibi", "sinks")
only = [Configuration("float32", everything), *map(Configuration, ("float16", "bfloat16"))]
report = run(OptimizedAttention(backend="numba"), seed=0, size="tiny", only=only)
backend.in_pairs = pairs_anywhere
paired = run(OptimizedAttention(backend="numba"), seed=0, size="tiny", only=[Configuration("bfloat16", everything)])
print(WIDTH, HAS_DOT, report.ok, paired.ok, *report.lines(), *paired.lines(), sep="\\n")
"""


@pytest.mark.skipif(WIDTH != 16, reason="needs a processor with AVX-512, to do without it")
def test_nothing_assumes_avx_512(tmp_path: Any) -> None:
    """Every law once more by vectors of eight, and pairs without an instruction for them."""
    done = python(
        NARROW, NUMBA_CPU_NAME="haswell", NUMBA_CPU_FEATURES="+avx2,+fma,+f16c", NUMBA_CACHE_DIR=str(tmp_path)
    )
    assert done.stdout.splitlines()[:4] == ["8", "False", "True", "True"], done.stdout[-3000:] + done.stderr[-3000:]
