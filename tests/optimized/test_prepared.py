"""A prepared call does what the call does, and hands the launcher what Triton would have handed it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from pagedkv.optimized import paged_attention
from pagedkv.optimized.attention import attend, prepared
from pagedkv.optimized.attention.attend_launches import attention_launches
from pagedkv.optimized.attention.cutting import Overrides
from pagedkv.optimized.attention.arguments import AttentionCall, Mask, overlap
from pagedkv.optimized.attention.prepared import VARYING, PreparedLaunch, kind_of, prepare_attention
from pagedkv.optimized.attention.torch_backend import TorchBackend
from pagedkv.optimized.attention.triton_backend import TritonBackend
from pagedkv.optimized.cpu.backend import CpuBackend
from pagedkv.optimized.launch import Launch
from pagedkv.spec import Misuse
from tests.benchmarks.no_device import idle_device
from tests.optimized.op_samples import FEATURES, attention_sample, caches


class InterpretedBackend(TritonBackend):
    """The launches of the Triton backend, interpreted."""

    def launches(self, call: AttentionCall) -> list[Launch]:
        return attention_launches(call, Overrides(upcast=True))

    def launch(self, launch: Launch) -> None:
        launch.interpret()


@pytest.fixture(params=[TorchBackend, CpuBackend, InterpretedBackend])
def _backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both functions, over each backend in turn."""
    for module in (attend, prepared):
        monkeypatch.setattr(module, "backend_for", lambda device, name=None: request.param())


@pytest.fixture
def _fresh_dynamo() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def layers(rows: str, count: int = 2, seed: int = 0) -> Iterator[tuple[tuple[Tensor, ...], dict[str, Any]]]:
    """Query, caches, tables, lengths and options of some layers of one step; splits of 16 make two of a table."""
    args, options = attention_sample(FEATURES[rows])
    generator = torch.Generator().manual_seed(seed)
    tables, lengths = args[3].repeat(1, 2), torch.tensor([5, 29], dtype=torch.int32)
    for _ in range(count):
        read = tuple(torch.randn(t.shape, generator=generator) for t in args[:3])
        yield (*read, tables, lengths), {**options, "split_size": 16}


@pytest.mark.usefixtures("_backend")
@pytest.mark.parametrize("given", [False, True], ids=["new out", "given out"])
@pytest.mark.parametrize("rows", ["decode", "mixed", "all"])
def test_every_layer_gets_the_bits_of_the_call(rows: str, given: bool) -> None:
    tensors, options = next(layers(rows))
    options = {**options, "return_lse": True, "backend": None}
    step, results = prepare_attention(*tensors, **options), []
    for (query, k_cache, v_cache, *_), _ in layers(rows, seed=1):
        out = torch.full_like(query, torch.nan) if given else None
        results.append(step(query, k_cache, v_cache, out))
        assert out is None or results[-1][0] is out
    for (got, lse), (layer, _) in zip(results, layers(rows, seed=1), strict=True):
        expected, expected_lse = paged_attention(*layer, **options)
        assert torch.equal(got, expected)
        assert torch.equal(lse, expected_lse)


@pytest.mark.usefixtures("_backend")
def test_lengths_and_tables_are_read_when_it_is_called() -> None:
    tensors, options = next(layers("mixed"))
    step = prepare_attention(*tensors, **options)
    tensors[3].copy_(tensors[3].flip(0))
    tensors[4].copy_(torch.tensor([20, 3]))
    assert torch.equal(torch.as_tensor(step(*tensors[:3])), torch.as_tensor(paged_attention(*tensors, **options)))


@pytest.mark.usefixtures("_backend")
def test_an_output_that_overlaps_what_is_read_is_written_last() -> None:
    (query, k_cache, v_cache, tables, lengths), options = next(layers("mixed"))
    room = torch.zeros(len(query) + 1, *query.shape[1:])
    room[:-1] = query
    expected = paged_attention(query, k_cache, v_cache, tables, lengths, **options)
    step = prepare_attention(query, k_cache, v_cache, tables, lengths, **options)
    assert torch.equal(torch.as_tensor(step(room[:-1], k_cache, v_cache, room[1:])), torch.as_tensor(expected))


@pytest.mark.parametrize("shift", [-2, -1, 0, 1, 2])
def test_no_backend_is_given_an_output_that_overlaps(shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Recorder(TorchBackend):
        def attend(self, call: AttentionCall) -> None:
            outs.append(call.out)
            super().attend(call)

    outs: list[Tensor] = []
    monkeypatch.setattr(prepared, "backend_for", lambda device, name=None: Recorder())
    tensors, options = next(layers("decode"))
    room = torch.zeros(6, *tensors[0].shape[1:])
    query, out = room[2:4], room[2 + shift : 4 + shift]
    assert step_of(tensors, options)(query, tensors[1], tensors[2], out) is out
    assert [overlap(given, query) for given in outs] == [False]
    assert (outs[0] is out) == (abs(shift) == 2)


@pytest.mark.usefixtures("_backend")
def test_one_tensor_may_stand_for_keys_and_values_while_it_is_prepared() -> None:
    (query, k_cache, v_cache, *rest), options = next(layers("decode"))
    got = prepare_attention(query, k_cache, k_cache, *rest, **options)(query, k_cache, v_cache)
    assert torch.equal(
        torch.as_tensor(got), torch.as_tensor(paged_attention(query, k_cache, v_cache, *rest, **options))
    )


def step_of(tensors: tuple[Tensor, ...], options: dict[str, Any]) -> prepared.PreparedAttention:
    """Prepared with copies, so that nothing prepared can be what is given later."""
    examples = [tensor.clone() for tensor in tensors[:3]]
    return prepare_attention(examples[0], examples[1], examples[2], *tensors[3:], **options)


BAD: list[tuple[str, int, Callable[[Tensor], Any]]] = [
    ("query.shape", 0, lambda t: t[:1]),
    ("query.dtype", 0, lambda t: t.half()),
    ("query.stride()", 0, lambda t: torch.cat([t, t], 1)[:, :4]),
    ("query.device", 0, lambda t: t.to("meta")),
    ("query.requires_grad", 0, lambda t: t.clone().requires_grad_()),
    ("query", 0, lambda _: None),
    ("k_cache.shape", 1, lambda t: t[:2]),
    ("k_cache.stride()", 1, lambda t: t.transpose(1, 2).contiguous().transpose(1, 2)),
    ("v_cache.dtype", 2, lambda t: t.bfloat16()),
    ("v_cache.requires_grad", 2, lambda t: t.clone().requires_grad_()),
    ("out.shape", 3, lambda t: t[:1]),
    ("out.dtype", 3, lambda t: t.half()),
    ("out.is_contiguous()", 3, lambda t: torch.cat([t, t], 1)[:, :4]),
    ("out.stride()", 3, lambda t: t[:1].expand_as(t)),
    ("out.requires_grad", 3, lambda t: t.clone().requires_grad_()),
    ("out", 3, lambda _: 1),
]


@pytest.mark.parametrize(("argument", "place", "spoil"), BAD, ids=[bad[0] for bad in BAD])
def test_another_form_than_prepared_is_named(argument: str, place: int, spoil: Callable[[Tensor], Any]) -> None:
    tensors, options = next(layers("decode"))
    given: list[Any] = [*tensors[:3], torch.zeros_like(tensors[0])]
    out = given[3]
    given[place] = spoil(given[place])
    with pytest.raises(Misuse) as caught:
        step_of(tensors, options)(*given)
    assert caught.value.argument == argument
    assert not out.any()


@pytest.mark.parametrize("name", ["seq_lens", "cu_seqlens_q"])
def test_what_is_read_later_is_read_in_place(name: str) -> None:
    tensors, options = next(layers("mixed"))
    given = dict(zip(("query", "k_cache", "v_cache", "block_tables", "seq_lens"), tensors, strict=True)) | options
    given[name] = torch.stack([given[name], given[name]], 1)[:, 0]
    with pytest.raises(Misuse, match=rf"{name}\.is_contiguous"):
        prepare_attention(**given)


def test_bad_arguments_are_named_when_it_is_prepared() -> None:
    tensors, _ = next(layers("decode"))
    with pytest.raises(Misuse, match="window"):
        prepare_attention(*tensors, window=0)


@pytest.mark.usefixtures("_fresh_dynamo")
def test_a_prepared_call_compiles_whole() -> None:
    tensors, options = next(layers("all"))
    step = step_of(tensors, {**options, "return_lse": True})
    compiled = torch.compile(step.__call__, fullgraph=True, backend="aot_eager")
    for got, expected in zip(compiled(*tensors[:3]), step(*tensors[:3]), strict=True):
        assert torch.equal(got, expected)


def test_a_prepared_call_can_be_traced_with_fake_tensors() -> None:
    with FakeTensorMode():
        tensors, options = next(layers("decode"))
        step = prepare_attention(*tensors, **options)
        out = step(*tensors[:3])
    assert isinstance(out, Tensor)
    assert out.shape == tensors[0].shape


@pytest.mark.parametrize("rows", ["decode", "mixed"])
def test_the_launcher_is_given_what_triton_would_give_it(rows: str) -> None:
    """Grid, compiled kernel and every argument, for tensors at addresses that 16 divides, and at others."""
    (query, _, _, tables, lengths), options = next(layers(rows))
    counts = options.get("cu_seqlens_q")
    room, mask = torch.empty(4096), Mask(1.0, True, None, 0.0, None, None)

    def call_at(offset: int) -> AttentionCall:
        spare = torch.zeros(query.numel() + 4)[offset : offset + query.numel()].view_as(query)
        key, value = caches()
        out, lse = torch.zeros_like(query), torch.zeros(query.shape[:2])
        return AttentionCall(spare, key, value, tables, lengths, counts, mask, out, lse, 16, room)

    prototype = call_at(0)
    tensors = [getattr(prototype, name) for name in VARYING]
    with idle_device() as device:
        steps = [PreparedLaunch(each, Launch.run, tensors) for each in attention_launches(prototype)]
        for offset in (0, 1, 0, 1, 0):
            call = call_at(offset)
            others = [getattr(call, name) for name in VARYING]
            for step, launch in zip(steps, attention_launches(call), strict=True):
                step(others, tuple(kind_of(each) for each in others))
                launch.run()
                ours, theirs = device.launched[-2], device.launched[-1]
                assert len(ours) == len(theirs)
                for got, wanted in zip(ours, theirs, strict=True):
                    same_view = isinstance(got, Tensor) and got.data_ptr() == wanted.data_ptr()
                    assert got is wanted or same_view or got == wanted
    assert [len(step.compiled) for step in steps[:1]] == [2]  # decode reads the query, merge does not
