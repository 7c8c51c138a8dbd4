"""The operators of attention: their schemas and fakes hold, and compiled code computes the bits of eager code."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from pagedkv.optimized import copy_blocks, gather_kv, merge_attention, paged_attention, write_kv
from pagedkv.optimized.attention import BlockCopier, attend, moves
from pagedkv.optimized.attention.arguments import AttentionCall
from pagedkv.optimized.attention.torch_backend import TorchBackend
from tests.optimized.op_samples import (
    FEATURES, Sample, attention_sample, attention_samples, caches, gather_sample, other_samples, write_sample,
)  # fmt: skip

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "paged_attention": paged_attention, "write_kv": write_kv, "copy_blocks": copy_blocks, "gather_kv": gather_kv,
    "merge_attention": merge_attention,
}  # fmt: skip
OTHERS = list(other_samples())
COMPILERS = [name for name in ("c++", "g++", "clang++") if shutil.which(name)]
BACKENDS = [
    "aot_eager",
    pytest.param("inductor", marks=pytest.mark.skipif(not COMPILERS, reason="inductor needs a C++ compiler")),
]


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def op(name: str) -> Any:
    """The one overload of an operator."""
    return getattr(torch.ops.pagedkv, name).default


def copied(value: Any) -> Any:
    """Arguments of their own for a second call, which views of one tensor stay: strides and all."""
    match value:
        case Tensor():
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(value)
        case list() | tuple():
            return type(value)(copied(part) for part in value)
        case _:
            return value


@pytest.mark.parametrize("sample", [pytest.param(sample, id=name) for name, sample in attention_samples()])
def test_attention_is_a_sound_operator(sample: Sample) -> None:
    args, options = sample
    torch.library.opcheck(op("paged_attention"), args, options)
    out = torch.empty(*args[0].shape[:2], args[2].shape[3], dtype=args[0].dtype)
    torch.library.opcheck(op("paged_attention_out"), args, {**options, "out": out})
    torch.library.opcheck(op("paged_attention_out"), args, {**options, "out": out, "workspace": torch.empty(4096)})


@pytest.mark.parametrize(("name", "sample"), [pytest.param(n, s, id=f"{n}, {what}") for n, what, s in OTHERS])
def test_the_others_are_sound_operators(name: str, sample: Sample) -> None:
    torch.library.opcheck(op(name), *sample)


@pytest.mark.parametrize("total", [None, 8])
def test_gathering_into_memory_of_the_caller_is_a_sound_operator(total: int | None) -> None:
    args, options = gather_sample(caches()[0])
    out = torch.full((8, 2, 8), torch.nan)
    torch.library.opcheck(op("gather_kv_out"), args, {**options, "total": total, "out": out})
    compiled = torch.compile(gather_kv, fullgraph=True, backend="aot_eager")
    assert compiled(*args, **{**options, "total": total}, out=out) is out
    assert torch.equal(out, gather_kv(*args, **options))


@pytest.mark.parametrize("sample", [pytest.param(sample, id=name) for name, sample in attention_samples()])
def test_compiled_attention_has_the_bits_of_eager(sample: Sample) -> None:
    args, options = sample
    compiled = torch.compile(paged_attention, fullgraph=True, backend="aot_eager")
    expected = paged_attention(*args, return_lse=True, **options)
    for got, wanted in zip(compiled(*args, return_lse=True, **options), expected, strict=True):
        assert torch.equal(got, wanted)
        assert got.stride() == wanted.stride()
    rooms: list[dict[str, Any]] = [{}, {"workspace": torch.empty(4096)}]
    for room in rooms:
        out = torch.full_like(expected[0], torch.nan)
        given: dict[str, Any] = {"out": out, **room, **options}
        assert compiled(*args, **given) is out
        assert torch.equal(out, expected[0])


def test_the_split_size_arrives_whatever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def recorder(split_size: object, *_: object) -> int:
        seen.append(split_size)
        return 512

    seen: list[object] = []
    monkeypatch.setattr(attend, "split_size_of", recorder)
    compiled = torch.compile(paged_attention, fullgraph=True, backend="aot_eager")
    args, _ = attention_sample({})
    for split_size in ("fill", 32, None):
        compiled(*args, split_size=split_size)
    assert seen == ["fill", 32, None]


@pytest.mark.parametrize(("name", "sample"), [pytest.param(n, s, id=f"{n}, {what}") for n, what, s in OTHERS])
def test_what_is_compiled_does_what_is_eager(name: str, sample: Sample) -> None:
    args, options = sample
    eager, traced = copied(args), copied(args)
    expected = FUNCTIONS[name](*eager, **options)
    got = torch.compile(FUNCTIONS[name], fullgraph=True, backend="aot_eager")(*traced, **options)
    torch.testing.assert_close((got, traced), (expected, eager), rtol=0, atol=0, equal_nan=True)


class Layer(nn.Module):
    """What a model has: projections, and a cache in which keys and values lie side by side."""

    cache: Tensor

    def __init__(self, *, head_major: bool) -> None:
        super().__init__()
        self.projection = nn.Linear(16, (4 + 2 + 2) * 8, bias=False)
        self.register_buffer("cache", torch.zeros(8, 2, 2, 4, 8) if head_major else torch.zeros(8, 2, 4, 2, 8))
        self.head_major = head_major

    def forward(self, hidden: Tensor, block_tables: Tensor, seq_lens: Tensor, slot_mapping: Tensor) -> Tensor:
        """One step of decoding: write the new KV, then attend."""
        query, key, value = self.projection(hidden).view(len(hidden), 8, 8).split((4, 2, 2), dim=1)
        k_cache, v_cache = (self.cache.transpose(2, 3) if self.head_major else self.cache).unbind(1)
        write_kv(key, value, k_cache, v_cache, slot_mapping)
        attended = paged_attention(query, k_cache, v_cache, block_tables, seq_lens)
        assert isinstance(attended, Tensor)
        return hidden + attended.flatten(1)[:, :16].relu()


def steps(batch: int, count: int = 3) -> Iterator[tuple[Tensor, ...]]:
    """Hidden states, block tables, lengths and slots of some steps; each request has blocks of its own."""
    generator = torch.Generator().manual_seed(6)
    tables = torch.randperm(8, generator=generator, dtype=torch.int32)[: batch * (8 // batch)].view(batch, -1)
    for step in range(count):
        slots = tables[:, 0].long() * 4 + step
        yield torch.randn(batch, 16, generator=generator), tables, torch.full((batch,), step + 1).int(), slots


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # raised by the import of inductor itself
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("head_major", [False, True], ids=["token-major", "head-major"])
def test_a_layer_with_its_cache_compiles_whole(backend: str, head_major: bool) -> None:
    layer = Layer(head_major=head_major)
    twin = Layer(head_major=head_major)
    twin.load_state_dict(layer.state_dict())
    compiled = torch.compile(twin, fullgraph=True, backend=backend)
    with torch.no_grad():
        for step in steps(batch=2):
            assert torch.equal(compiled(*step), layer(*step))
    assert layer.cache.any()
    assert torch.equal(twin.cache, layer.cache)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # raised by the import of inductor itself
@pytest.mark.skipif(not COMPILERS, reason="inductor needs a C++ compiler")
def test_inductor_clones_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operators are given the caches themselves, views of one tensor too, and the output that is given."""

    class Recorder(TorchBackend):
        def attend(self, call: AttentionCall) -> None:
            seen.extend((call.k_cache, call.v_cache, call.out))
            super().attend(call)

        def write_kv(self, rows: Any, caches: tuple[Tensor, Tensor], slot_mapping: Tensor) -> None:
            seen.extend(caches)
            super().write_kv(rows, caches, slot_mapping)

        def copier(self, sources: Any, destinations: Any) -> Any:
            seen.extend(sources)
            return super().copier(sources, destinations)

    def step(both: Tensor, hidden: Tensor, out: Tensor, *rest: Tensor) -> Tensor:
        tables, lengths, slots, pairs = rest
        k_cache, v_cache = both.unbind(1)
        copy_blocks([k_cache, v_cache], pairs)
        write_kv(hidden.sin(), hidden.cos(), k_cache, v_cache, slots)
        paged_attention(hidden.repeat(1, 2, 1), k_cache, v_cache, tables, lengths, out=out)
        return out * 2

    seen: list[Tensor] = []
    for module in (attend, moves):
        monkeypatch.setattr(module, "backend_for", lambda device, name=None: Recorder())
    (k_cache, v_cache), out = caches(), torch.zeros(2, 4, 8)
    both = k_cache._base
    assert both is not None
    rest = (*attention_sample({})[0][3:], torch.tensor([1, 17]), torch.tensor([[0, 7]]))
    torch.compile(step, fullgraph=True, backend="inductor")(both, torch.randn(2, 2, 8), out, *rest)
    pair = [k_cache.data_ptr(), v_cache.data_ptr()]
    assert [tensor.data_ptr() for tensor in seen] == [*pair, *pair, *pair, out.data_ptr()]


def test_a_prepared_copier_compiles_whole() -> None:
    pair, twin, pairs = caches(), caches(), torch.tensor([[0, 2], [-1, 0], [1, 3]])
    torch.compile(BlockCopier(pair).__call__, fullgraph=True, backend="aot_eager")(pairs)
    copy_blocks(twin, pairs)
    for got, wanted in zip(pair, twin, strict=True):
        assert torch.equal(got, wanted)


def test_a_batch_that_varies_is_compiled_once() -> None:
    layer = Layer(head_major=False)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    with torch.no_grad():
        for batch in (2, 3, 4):
            for step in steps(batch, count=1):
                for tensor in step:
                    torch._dynamo.mark_dynamic(tensor, 0)
                torch._dynamo.mark_dynamic(step[1], 1)
                assert compiled(*step).shape == (batch, 16)
    assert counter.frame_count == 1
    called = {node.target for node in counter.graphs[0].graph.nodes if node.op == "call_function"}
    assert {op("write_kv"), op("paged_attention")} <= called


def test_a_length_that_varies_is_compiled_twice_at_most() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(gather_kv, fullgraph=True, backend=counter)
    cache, table = caches()[0], torch.tensor([3, 1, 2], dtype=torch.int32)
    for length in (2, 5, 7, 12, 9):
        assert torch.equal(compiled(cache, table, length), gather_kv(cache, table, length))
    assert counter.frame_count <= 2


def test_an_exported_program_holds_the_operators() -> None:
    layer = Layer(head_major=True)
    (step,) = steps(batch=2, count=1)
    with torch.no_grad():
        program = torch.export.export(layer, step)
        expected = layer(*step)
        layer.cache.zero_()
        assert torch.equal(program.module()(*step), expected)
    assert {op("write_kv"), op("paged_attention")} <= {node.target for node in program.graph.nodes}


def test_eager_calls_do_not_pass_the_dispatcher(monkeypatch: pytest.MonkeyPatch) -> None:
    args, options = attention_sample(FEATURES["all"])
    for name in (*FUNCTIONS, "paged_attention_out"):
        monkeypatch.setattr(torch.ops.pagedkv, name, None)
    for name, _, (others, rest) in OTHERS:
        FUNCTIONS[name](*copied(others), **rest)
    paged_attention(*args, **options)
    with pytest.raises(AttributeError):  # what a call that did pass would raise
        gather_kv(args[1].to("meta"), args[3][0].to("meta"), 1)


def test_one_write_mutates_caches_that_share_a_tensor() -> None:
    args, _ = write_sample()
    before = args[2].clone()
    torch.compile(write_kv, fullgraph=True, backend="aot_eager")(*args)
    assert torch.equal(args[2][1, 1], args[0][0])
    assert torch.equal(args[3][7, 2], args[1][2])
    assert int((args[2] != before).any(-1).sum()) == 4  # two tokens of two heads
