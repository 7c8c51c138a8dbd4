"""Interpreting unmodified kernels: same results as torch, any order of programs, races found, nothing left behind."""

import threading
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagedkv.optimized.audit.access_log import AccessLog, LaunchAccess, ProgramAccess, spans_of
from pagedkv.optimized.audit.interpret import Interpreted, InterpretedError, OutOfBounds, ordered, recording, shuffled
from pagedkv.spec import Misuse

torch = pytest.importorskip("torch", reason="interpreted kernels run on torch tensors")
triton = pytest.importorskip("triton", reason="Triton exists for Linux only")
tiny: Any = import_module(".tiny_kernels", __package__)


def triton_globals() -> list[dict[str, Any]]:
    """Every attribute that the interpreter could have changed."""
    language, runtime = triton.language, triton.runtime
    core = language.core
    owners = (language, core, language.math, core.tensor, core.dtype, core.tensor_descriptor_base)
    return [dict(vars(owner)) for owner in (*owners, runtime.jit.JITFunction)] + [
        dict(vars(runtime.interpreter.interpreter_builder))
    ]


def add(num_elements: int, piece: int, **options: Any) -> Any:
    """The absolute difference between the kernel's result and torch's, all zeros if it is right."""
    x, y = torch.arange(num_elements, dtype=torch.float32), torch.full((num_elements,), 0.5)
    out = torch.full((num_elements,), float("nan"))
    grid = (-(-num_elements // piece),)
    Interpreted(tiny.add_kernel, **options)[grid](x, y, out, num_elements, PIECE=piece, num_warps=4, num_stages=2)
    return (out - (x + 3 * y)).abs()


@given(num_elements=st.integers(1, 40), piece=st.sampled_from([1, 4, 16]), seed=st.integers(0, 9))
def test_results_are_those_of_torch_in_every_order(num_elements: int, piece: int, seed: int) -> None:
    with ordered(shuffled(seed)), recording() as log:
        assert add(num_elements, piece).max() == 0  # stores arrive in the caller's tensor
    assert log.conflicts() == []
    (launch,) = log.launches
    assert launch.bytes_touched("store") == 4 * num_elements  # masked lanes touch nothing
    assert launch.bytes_touched("load") == 8 * num_elements


def test_the_language_written_in_itself() -> None:
    x, out = torch.tensor([1.0, 0, -2, 5, 3, -1, 4, 2]), torch.zeros(8)  # exact but for the softmax
    Interpreted(tiny.language_kernel)[(1,)](x, out, 8)
    weights, others = x.double().softmax(0), x.sum() + x.max() + x.argmax() + x.cumsum(0) + 4
    rounding = weights * (2 * 2.0**-22 + 10 * 2.0**-24) + (weights + others).abs() * 2.0**-24
    assert bool(((out - others - weights).abs() <= rounding).all())


@pytest.mark.parametrize("grid", [(5,), (2, 3), (2, 3, 2)])
def test_every_program_of_a_grid_runs_once(grid: tuple[int, ...]) -> None:
    out = torch.zeros(int(np.prod(grid)), dtype=torch.int32)
    with recording() as log:
        Interpreted(tiny.grid_kernel)[grid](out)
    assert out.tolist() == list(range(1, len(out) + 1))
    assert [p.program for p in log.launches[0].programs] == list(np.ndindex(*grid, *(1,) * (3 - len(grid))))
    Interpreted(tiny.grid_kernel)[lambda arguments: (len(arguments["out"]), 1, 1)](out)
    Interpreted(tiny.grid_kernel)[0, 2](None)  # an empty grid launches nothing


def test_a_shuffled_order_is_another_permutation() -> None:
    grid = [(i, 0, 0) for i in range(20)]
    orders = [tuple(shuffled(seed)(list(grid))) for seed in range(5)]
    assert len({*orders, tuple(grid)}) == 6
    assert all(sorted(order) == grid for order in orders)
    with recording() as log:
        add(20, 1, program_order=shuffled(3))
    assert tuple(p.program for p in log.launches[0].programs) == orders[3]


@pytest.mark.parametrize("keep", [lambda p: p[1:], lambda p: [*p, p[0]], lambda p: [*p[1:], (9, 0, 0)]])
def test_an_order_must_be_a_permutation(keep: Any) -> None:
    with pytest.raises(Misuse, match="program_order"):
        add(8, 4, program_order=keep)


def test_a_race_shows_in_the_log_and_in_the_result() -> None:
    results = set()
    for seed in range(4):
        out = torch.zeros(17)
        with ordered(shuffled(seed)), recording() as log:
            Interpreted(tiny.overlapping_kernel)[(4,)](torch.zeros(17), out, STEP=3, PIECE=4)
        results.add(tuple(out.tolist()))
        found = log.conflicts()
        assert {frozenset((c.program[0], c.other[0])) for c in found} == {frozenset((i, i + 1)) for i in range(3)}
        assert {(c.kernel, c.argument, c.access, c.other_access) for c in found} == {
            ("overlapping_kernel", "out", "store", "store")
        }
        assert sorted(c.offset for c in found) == [12, 24, 36]
    assert len(results) > 1


def test_neighbours_that_touch_but_do_not_overlap_are_no_race() -> None:
    with recording() as log:
        Interpreted(tiny.overlapping_kernel)[(4,)](torch.zeros(16), torch.zeros(16), STEP=4, PIECE=4)
    assert log.conflicts() == []


def test_reading_what_another_program_writes_is_a_race() -> None:
    x = torch.zeros(5)
    with recording() as log:
        Interpreted(tiny.shift_kernel)[(4,)](x)
    found = {(c.program[0], c.access, c.other[0], c.other_access, c.offset) for c in log.conflicts()}
    assert found == {(i, "store", i + 1, "load", 4 * (i + 1)) for i in range(3)}
    with recording() as log:  # launches follow each other, so across them nothing conflicts
        for _ in range(2):
            Interpreted(tiny.shift_kernel)[(1,)](x)
    assert len(log.launches) == 2
    assert log.conflicts() == []


def test_atomics_are_excepted_where_declared_and_only_among_themselves() -> None:
    total = torch.zeros(1)
    with recording() as log:
        Interpreted(tiny.count_kernel)[(3,)](torch.ones(3), total)
        assert total.item() == 3
    assert len(log.conflicts()) == 3
    assert log.conflicts(atomics_declared=True) == []
    with recording() as log:
        Interpreted(tiny.count_kernel)[(3,)](*[torch.ones(3)] * 2)  # program 0 also loads what all update
    found = log.conflicts(atomics_declared=True)
    assert {(c.program[0], c.access, c.other[0], c.other_access) for c in found} == {
        (1, "atomic", 0, "load"),
        (2, "atomic", 0, "load"),
    }
    with pytest.raises(OutOfBounds):
        Interpreted(tiny.count_kernel)[(2,)](torch.ones(2), torch.zeros(0))


@given(
    touched=st.lists(
        st.tuples(st.sampled_from(["load", "store", "atomic"]), st.lists(st.integers(0, 30), min_size=1, max_size=4)),
        min_size=1,
        max_size=5,
    )
)
def test_conflicts_are_what_the_sets_of_bytes_say(touched: list[tuple[Any, list[int]]]) -> None:
    launch = LaunchAccess("kernel", ())
    for i, (access, addresses) in enumerate(touched):
        launch.programs.append(ProgramAccess((i, 0, 0)))
        launch.programs[-1].add(access, spans_of(np.array(addresses, np.uint64), 4))
    sets = [{a + k for a in addresses for k in range(4)} for _, addresses in touched]
    expected = {
        frozenset((i, j)): min(sets[i] & sets[j])
        for i in range(len(sets))
        for j in range(i)
        if sets[i] & sets[j] and {touched[i][0], touched[j][0]} != {"load"}
    }
    found = AccessLog([launch]).conflicts()
    assert {frozenset((c.program[0], c.other[0])): c.offset for c in found} == expected
    assert len(found) == len(expected)


def test_out_of_bounds_is_an_error_and_nothing_is_touched() -> None:
    whole = torch.zeros(16)
    whole[8:] = 7
    with pytest.raises(OutOfBounds, match=r"program \(1, 0, 0\): load .* nearest is x, 24 bytes, at its byte 24"):
        Interpreted(tiny.unmasked_kernel)[(2,)](torch.ones(6), whole[:8], PIECE=4)
    with pytest.raises(OutOfBounds, match=r"store .* nearest is out, 24 bytes, at its byte 24"):
        Interpreted(tiny.unmasked_kernel)[(2,)](torch.ones(8), whole[:6], PIECE=4)
    assert whole.tolist() == [1] * 4 + [0] * 4 + [7] * 8
    Interpreted(tiny.unmasked_kernel)[(2,)](torch.ones(8), whole[8:], PIECE=4)
    assert whole[8:].tolist() == [1] * 8


def random_numbers(count: int, dtype: Any) -> Any:
    """Numbers of all magnitudes, ties, infinities and NaN."""
    bits = np.random.default_rng(0).integers(0, 2**32, count, dtype=np.uint32)
    bits[::3] = bits[::3] & 0xFFFF_0000 | 0x8000  # half-way between two bfloat16
    numbers = bits.view(np.float32)
    numbers[np.isnan(numbers)] = np.nan  # a quiet one: what a signalling one becomes is up to the machine
    return torch.from_numpy(numbers).to(dtype)


def same(left: Any, right: Any) -> bool:
    """Equal numbers, and NaN at the same places."""
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_arithmetic_rounds_to_nearest_even_at_every_step(dtype: Any) -> None:
    x, y = random_numbers(1024, dtype).view(2, 512)
    out, largest = torch.zeros(2, 512, dtype=dtype)
    Interpreted(tiny.arithmetic_kernel)[(1,)](x, y, out, largest, 512)
    assert same(out, x * y - x)
    assert same(largest, torch.fmax(x, y))  # of a number and NaN the number, as on a GPU


@pytest.mark.parametrize("source", [torch.float32, torch.float16, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("target", [torch.float32, torch.float16, torch.bfloat16])
def test_casts_are_those_of_torch(source: Any, target: Any) -> None:
    x = random_numbers(512, torch.float32)
    x = x.view(torch.int32) >> 4 if source == torch.int32 else x.to(source)
    out = torch.zeros(512, dtype=target)
    Interpreted(tiny.unmasked_kernel)[(1,)](x, out, 512)
    assert same(out, x.to(target))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_products_are_exact_on_small_integers(dtype: str) -> None:
    x, y = torch.randint(-4, 5, (2, 16, 16)).to(getattr(torch, dtype))
    out = torch.zeros(16, 16)
    Interpreted(tiny.product_kernel)[(1,)](x, y, out, 16)
    assert torch.equal(out, x.float() @ y.float())


def test_a_failure_names_the_program() -> None:
    with pytest.raises(InterpretedError, match=r"failing_kernel, program \(2, 0, 0\)"):
        Interpreted(tiny.failing_kernel)[(4,)](torch.zeros(4))


def test_misuse() -> None:
    with pytest.raises(Misuse, match="kernel"):
        Interpreted(len)
    with pytest.raises(Misuse, match="grid"):
        Interpreted(tiny.shift_kernel)[(-1,)](torch.zeros(4))
    with pytest.raises(Misuse, match=r"x=device.*CPU"):
        Interpreted(tiny.shift_kernel)[(1,)](torch.zeros(4, device="meta"))
    with pytest.raises(TypeError, match="out"):
        Interpreted(tiny.unmasked_kernel)[(1,)](torch.zeros(4), PIECE=4)


def test_nothing_of_triton_stays_changed() -> None:
    module, before = dict(vars(tiny)), triton_globals()
    add(8, 4)
    with pytest.raises(InterpretedError), recording():
        Interpreted(tiny.failing_kernel)[(4,)](torch.zeros(4))
    with pytest.raises(OutOfBounds):
        Interpreted(tiny.unmasked_kernel)[(2,)](torch.ones(6), torch.ones(6), PIECE=4)
    for was, now in zip(before, triton_globals(), strict=True):
        assert was.keys() == now.keys()
        assert [name for name in was if was[name] is not now[name]] == []
    assert dict(vars(tiny)) == module
    with pytest.raises(RuntimeError, match="outside of the scope of a kernel"):
        triton.language.cdiv(3, 2)


def test_a_replaced_helper_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert add(4, 4).max() == 0
    monkeypatch.setattr(tiny, "SCALE", 4.0)
    assert add(4, 4).max() == 0.5


def test_threads_wait_for_each_other() -> None:
    differences: list[float] = []
    threads = [threading.Thread(target=lambda: differences.append(float(add(12, 4).max()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert differences == [0.0] * 4
