"""Tracing attention: a gradient is refused by name on every way in, and nothing looks at a device's values."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode

from pagedkv.optimized import copy_blocks, gather_kv, merge_attention, paged_attention, write_kv
from pagedkv.optimized.attention.arguments import AttentionCall, Mask
from pagedkv.optimized.launch import Launch
from pagedkv.spec import Misuse
from tests.optimized.op_samples import FEATURES, attention_sample, caches, gather_sample, write_sample

EVERYTHING = attention_sample(FEATURES["all"])
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "paged_attention": (
        paged_attention,
        {**dict(zip(("query", "k_cache", "v_cache", "block_tables", "seq_lens"), EVERYTHING[0], strict=True)),
         **EVERYTHING[1]},
    ),
    "write_kv": (
        write_kv, dict(zip(("key", "value", "k_cache", "v_cache", "slot_mapping"), write_sample()[0], strict=True))
    ),
    "copy_blocks": (copy_blocks, {"caches": list(caches()), "pairs": torch.tensor([[0, 2]])}),
    "gather_kv": (
        gather_kv,
        {**dict(zip(("cache", "block_tables", "cu_seqlens"), gather_sample(caches()[0])[0], strict=True)),
         **gather_sample(caches()[0])[1]},
    ),
    "merge_attention": (merge_attention, {"outs": torch.zeros(2, 3, 4, 8), "lses": torch.zeros(2, 3, 4)}),
}  # fmt: skip
ASKING = [
    *(("paged_attention", name) for name in ("query", "k_cache", "v_cache", "alibi_slopes", "sinks", "out")),
    *(("write_kv", name) for name in ("key", "value", "k_cache", "v_cache")),
    ("copy_blocks", "caches[1]"), ("gather_kv", "cache"), ("gather_kv", "out"), ("merge_attention", "outs"),
    ("merge_attention", "lses"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def operator(name: str) -> Callable[..., Any]:
    """The operator of a function, called with the function's arguments."""

    def call(**arguments: Any) -> Any:
        return getattr(torch.ops.pagedkv, f"{name}_out" if "out" in arguments else name)(**arguments)

    return call


def asking(name: str, argument: str) -> dict[str, Any]:
    """The arguments of a call, one of which asks for a gradient."""
    arguments = dict(CALLS[name][1])
    if argument == "out":
        arguments["out"] = torch.empty(8, 2, 8) if name == "gather_kv" else torch.empty_like(arguments["query"])
    if argument == "caches[1]":
        arguments["caches"] = [arguments["caches"][0], nn.Parameter(arguments["caches"][1].clone())]
    else:
        arguments[argument] = nn.Parameter(arguments[argument].clone())
    return arguments


@pytest.mark.parametrize(("name", "argument"), ASKING)
def test_a_gradient_is_refused_by_name(name: str, argument: str) -> None:
    function, arguments = CALLS[name][0], asking(name, argument)
    for way in (function, operator(name)):
        with pytest.raises(Misuse) as caught:
            way(**arguments)
        assert caught.value.argument == f"{argument}.requires_grad"
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    with pytest.raises(RuntimeError, match=rf"{argument.replace('[', '.').replace(']', '.')}\.requires_grad=True"):
        compiled(**arguments)


@pytest.mark.parametrize(("name", "argument"), ASKING)
def test_parameters_may_be_passed_where_no_gradient_is_kept(name: str, argument: str) -> None:
    function = CALLS[name][0]
    with torch.no_grad():
        expected = function(**asking(name, argument))
        for way in (operator(name), torch.compile(function, fullgraph=True, backend="aot_eager")):
            got = way(**asking(name, argument))
            first = [result[0] if isinstance(result, tuple) else result for result in (got, expected)]
            if argument != "out":  # whose operator returns the log-sum-exp alone
                torch.testing.assert_close(*first, rtol=0, atol=0)


def moved(value: Any, make: Callable[[Tensor], Tensor]) -> Any:
    """Arguments with every tensor made anew."""
    return torch.utils._pytree.tree_map_only(Tensor, make, value)


def like(device: str) -> Callable[[Tensor], Tensor]:
    """A tensor of the same shape, strides and dtype elsewhere; nothing is copied."""
    return lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device)


@pytest.mark.parametrize("device", ["cpu", "cuda", "meta"])
@pytest.mark.parametrize("name", CALLS)
def test_fake_tensors_give_the_shapes_of_real_ones(name: str, device: str) -> None:
    function, arguments = CALLS[name]
    expected = function(**moved(arguments, torch.clone))
    with FakeTensorMode():
        fakes = function(**moved(arguments, like(device)))
    for fake, real in zip(
        torch.utils._pytree.tree_leaves(fakes), torch.utils._pytree.tree_leaves(expected), strict=True
    ):
        assert (real is None and fake is None) or (fake.shape, fake.dtype, fake.stride()) == (
            real.shape, real.dtype, real.stride()
        )  # fmt: skip
        assert real is None or fake.device.type == device


EACH = [
    (name, argument) for name, (_, arguments) in CALLS.items() for argument, v in arguments.items() if v is not None
]


@pytest.mark.parametrize(("name", "argument"), [(n, a) for n, a in EACH if isinstance(CALLS[n][1][a], Tensor | list)])
def test_nothing_is_computed_if_one_argument_has_no_values(name: str, argument: str) -> None:
    function, arguments = CALLS[name]
    before = moved(arguments, torch.clone)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        given = arguments[argument]
        fake = [given[0], mode.from_tensor(given[1])] if isinstance(given, list) else mode.from_tensor(given)
        results = torch.utils._pytree.tree_leaves(function(**{**arguments, argument: fake}))
    assert all(isinstance(result, FakeTensor) for result in results if result is not None)
    for tensor, was in zip(*map(torch.utils._pytree.tree_leaves, (arguments, before)), strict=True):
        assert not isinstance(tensor, Tensor) or torch.equal(tensor, was)


class Closed(nn.Module):
    """A call of which all arguments but one are constants."""

    def __init__(self, name: str, argument: str) -> None:
        super().__init__()
        self.function, self.arguments = CALLS[name]
        self.argument = argument

    def forward(self, given: Tensor) -> Any:
        return self.function(**{**self.arguments, self.argument: given})


ONE_GIVEN = [
    (name, argument)
    for name in ("paged_attention", "gather_kv", "merge_attention")
    for argument, value in CALLS[name][1].items()
    if isinstance(value, Tensor)
]


@pytest.mark.parametrize(("name", "argument"), ONE_GIVEN)
def test_one_traced_argument_is_enough(name: str, argument: str) -> None:
    module = Closed(name, argument)
    given = module.arguments[argument]
    program = torch.export.export(module, (given,)).module()
    torch.testing.assert_close(program(given), module(given), rtol=0, atol=0)


@pytest.mark.parametrize(("name", "argument"), [a for a in ASKING if a[1] not in ("out", "caches[1]")])
def test_tensors_on_two_devices_are_refused_while_tracing(name: str, argument: str) -> None:
    function, arguments = CALLS[name]
    with FakeTensorMode():
        fakes = {k: moved(v, like("cuda" if k == argument else "cpu")) for k, v in arguments.items()}
        with pytest.raises(Misuse, match="device"):
            function(**fakes)


def test_a_backend_that_looks_at_values_is_noticed() -> None:
    """What the next tests rely on: neither fake nor meta tensors can be looked at."""
    with FakeTensorMode(), pytest.raises(DataDependentOutputException):
        torch.empty(2, device="cuda").tolist()
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.empty(2, device="meta").tolist()


def run_on_meta(run: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the launches that a call would make; none is made."""
    launched: list[str] = []
    monkeypatch.setattr(Launch, "run", lambda launch: launched.append(launch.name))
    run()
    return launched


@pytest.mark.parametrize("rows", ["decode", "mixed"])
def test_the_triton_backend_attends_without_looking(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pagedkv.optimized.attention.triton_backend import TritonBackend  # noqa: PLC0415  # needs Triton

    args, options = moved(attention_sample(FEATURES["all" if rows == "mixed" else "decode"]), like("meta"))
    query, k_cache, v_cache, block_tables, seq_lens = args
    slopes, sinks, cu_seqlens_q = (options.get(name) for name in ("alibi_slopes", "sinks", "cu_seqlens_q"))
    mask = Mask(1.0, True, 3, 20.0, slopes, sinks)
    out, lse = torch.empty_like(query), query.new_empty(query.shape[:2], dtype=torch.float32)
    call = AttentionCall(query, k_cache, v_cache, block_tables, seq_lens, cu_seqlens_q, mask, out, lse, 16)
    assert run_on_meta(lambda: TritonBackend().attend(call), monkeypatch)


def test_the_triton_backend_moves_without_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    from pagedkv.optimized.attention.triton_backend import TritonBackend  # noqa: PLC0415  # needs Triton

    key, value, k_cache, v_cache, slots = (moved(arg, like("meta")) for arg in write_sample()[0])
    assert run_on_meta(lambda: TritonBackend().write_kv((key, value), (k_cache, v_cache), slots), monkeypatch)
    tables, counts = torch.empty(2, 3, dtype=torch.int32, device="meta"), slots.int()
    gathered = torch.empty(8, *k_cache.shape[2:], device="meta")
    assert run_on_meta(lambda: TritonBackend().gather(k_cache, tables, counts, None, gathered), monkeypatch)
