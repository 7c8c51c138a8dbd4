"""Compiling without a GPU: every target, the same cost each time, spills seen, the user's Triton untouched."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pagedkv.optimized.audit import aot, machine_code
from pagedkv.optimized.audit.interpret import Interpreted
from pagedkv.optimized.audit.recorder import recording_launches
from pagedkv.optimized.audit.targets import TARGETS
from pagedkv.optimized.launch import Launch
from pagedkv.spec import Misuse

torch = pytest.importorskip("torch", reason="example arguments are torch tensors")
triton = pytest.importorskip("triton", reason="Triton exists for Linux only")
tiny: Any = import_module(".tiny_kernels", __package__)
driver = triton.runtime.driver


@pytest.fixture(autouse=True)
def untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After each test the user's cache is empty, and environment, knobs and driver are as before."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "users"))
    before = dict(os.environ), dict(vars(triton.knobs.cache)), driver._active
    yield
    environment = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    assert environment == {k: v for k, v in before[0].items() if k != "PYTEST_CURRENT_TEST"}
    assert dict(vars(triton.knobs.cache)) == before[1]
    assert driver._active is before[2]
    assert not (tmp_path / "users").exists()


def add_launch(piece: int = 256, num_warps: int = 4) -> Launch:
    """A launch of the adding kernel on 1000 numbers."""
    x, y, out = torch.zeros(3, 1000).unbind()
    constants = {"PIECE": piece, "num_warps": num_warps}
    return Launch("add", f"piece={piece}", tiny.add_kernel, (-(-1000 // piece),), (x, y, out, 1000), constants)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_compiles_to_a_plausible_cost(target: str) -> None:
    found = aot.audit_launch(add_launch(), target)
    assert (found.kernel, found.configuration, found.target) == ("add", "piece=256", target)
    assert 2 <= found.registers <= 64
    assert 10 <= found.instructions <= 200
    assert found.seconds > 0
    assert (found.spill_bytes, found.shared_bytes, found.problems()) == (0, 0, [])
    larger = aot.audit_launch(add_launch(piece=2048), target)
    assert larger.instructions > found.instructions
    assert larger.registers > found.registers
    assert larger == dataclasses.replace(aot.audit_launch(add_launch(piece=2048), target), seconds=larger.seconds)


@pytest.mark.parametrize("target", TARGETS)
def test_products_take_shared_memory(target: str) -> None:
    x = torch.zeros(64, 64, dtype=torch.float16)
    found = aot.compile_for(tiny.product_kernel, target, (x, x, x), {"SIZE": 64, "num_warps": 4})
    assert found.shared_bytes >= 64 * 64 * 2
    assert found.problems() == []


def test_spills_are_seen_where_registers_are_limited() -> None:
    x = torch.zeros(2 * 64 * 64)
    found = [
        aot.compile_for(tiny.hungry_kernel, "sm_90", (x, x), {"SIZE": 64, "maxnreg": maxnreg, "num_warps": 4})
        for maxnreg in (255, 32)
    ]
    assert found[0].spill_bytes == 0 < found[1].spill_bytes
    assert found[0].registers > 32 >= found[1].registers
    assert found[1].problems() == [f"spills {found[1].spill_bytes} bytes a thread"]


def test_spills_are_seen_where_a_tile_is_too_large() -> None:
    x = torch.zeros(2 * 128 * 128)
    small, large = (
        aot.compile_for(tiny.hungry_kernel, "gfx942", (x, x), {"SIZE": size, "num_warps": 1}) for size in (16, 128)
    )
    assert small.spill_bytes == 0 < large.spill_bytes


def test_instructions_are_the_disassembled_words_without_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs: list[str] = []
    run = machine_code.output

    def keep(*command: str) -> str:
        outputs.append(run(*command))
        return outputs[-1]

    monkeypatch.setattr(machine_code, "output", keep)
    found = aot.audit_launch(add_launch(), "sm_80")
    lines = [line for line in outputs[1].splitlines() if line.strip().startswith("/*")]
    assert len(lines) - sum("NOP;" in line for line in lines) == found.instructions
    addresses = [int(line.strip()[2:6], 16) for line in lines]
    assert addresses == list(range(0, 16 * len(lines), 16))  # none is missing


def test_compiling_and_interpreting_take_turns() -> None:
    launch = add_launch()
    first = aot.audit_launch(launch, "sm_90")
    x, y, out, count = launch.args
    x += 1
    y += 2
    dataclasses.replace(launch, kernel=Interpreted(launch.kernel)).run()
    assert out.tolist() == [7.0] * count
    out.zero_()
    second = aot.audit_launch(launch, "sm_90")
    assert dataclasses.replace(second, seconds=first.seconds) == first
    assert out.sum() == 0  # compiling runs nothing
    dataclasses.replace(launch, kernel=Interpreted(launch.kernel)).run()
    assert out.tolist() == [7.0] * count
    assert not launch.kernel.device_caches


def test_an_audit_is_of_every_launch_in_order() -> None:
    work = [(target, add_launch(piece)) for target in ("gfx942", "sm_80") for piece in (256, 512, 1024, 2048)]
    seen: list[aot.KernelAudit] = []
    audits = aot.audit(work, seen.append)
    assert audits == seen
    assert [(a.target, a.configuration) for a in audits] == [(t, launch.configuration) for t, launch in work]
    alone = [aot.audit_launch(launch, target) for target, launch in work]
    assert [dataclasses.replace(a, seconds=0) for a in audits] == [dataclasses.replace(a, seconds=0) for a in alone]


def test_figures_are_the_same_in_another_process() -> None:
    program = "import tests.optimized.test_aot as t, dataclasses; print(t.repeatable())"
    root = Path(__file__).parents[2]
    path = os.pathsep.join([*(str(root / name) for name in ("spec", "reference", "optimized", "tools")), str(root)])
    results = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert results[0] == results[1] == f"{repeatable()}\n"


def repeatable() -> list[aot.KernelAudit]:
    """Audits of a kernel with a loop, without their times."""
    x = torch.zeros(2 * 64 * 64)
    launch = Launch("hungry", "", tiny.hungry_kernel, (1,), (x, x), {"SIZE": 64, "num_warps": 4})
    return [dataclasses.replace(aot.audit_launch(launch, target), seconds=0) for target in ("sm_90", "gfx942")]


PLAIN = aot.KernelAudit("decode", "", "sm_90", 100, 0, 0, 1, 0.1)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"spill_bytes": 4}, "spills 4 bytes"),
        ({"shared_bytes": 227 * 1024 + 1}, "232449 bytes of shared memory, sm_90 has 232448"),
        ({"kv_load_bits": (64, 128), "kv_aligned": True}, "loads KV 64 bits a thread where the layout allows 128"),
        ({"narrow_products": ("k.py:3: arith.muli",)}, "k.py:3: arith.muli"),
        ({"kv_load_bits": (128, 128), "kv_aligned": True}, ""),
        ({"kv_load_bits": (32, 64), "kv_aligned": False}, ""),
        ({"shared_bytes": 227 * 1024}, ""),
    ],
)
def test_what_is_unfit_to_ship(changes: dict[str, Any], problem: str) -> None:
    found = dataclasses.replace(PLAIN, **changes).problems()
    assert len(found) == (1 if problem else 0)
    assert problem in "".join(found)


@pytest.mark.parametrize(
    ("shape", "stride", "aligned"),
    [
        ((2, 16, 3, 64), None, True),
        ((2, 16, 3, 8), None, True),
        ((2, 16, 3, 4), None, False),  # a row of 8 bytes
        ((2, 16, 3, 60), None, False),
        ((2, 3, 16, 64), (3072, 64, 192, 1), True),  # heads before tokens
        ((2, 16, 3, 64), (3264, 204, 68, 1), False),  # every other row begins within 16 bytes
        ((2, 16, 3, 64), (6144, 384, 128, 2), False),
    ],
)
def test_a_layout_allows_loads_of_16_bytes(
    shape: tuple[int, ...], stride: tuple[int, ...] | None, aligned: bool
) -> None:
    memory = torch.zeros(40_000, dtype=torch.float16)
    tensor = memory.as_strided(shape, torch.empty(shape).stride() if stride is None else stride)
    assert aot.is_aligned(tensor) is aligned
    shifted = memory.as_strided(shape, tensor.stride(), 4)
    assert not aot.is_aligned(shifted)


def test_launches_of_a_stranger_are_recorded_and_not_run() -> None:
    x, out = torch.ones(64), torch.zeros(64)
    before = tiny.unmasked_kernel
    with recording_launches(tiny, "unmasked_kernel", configuration="theirs") as launches:
        tiny.unmasked_kernel[lambda given: (64 // given["PIECE"],)](x, out, PIECE=32, num_warps=None)
    assert tiny.unmasked_kernel is before
    assert out.sum() == 0
    assert [(each.name, each.configuration, each.grid) for each in launches] == [("unmasked_kernel", "theirs", (2,))]
    assert aot.audit_launch(launches[0], "sm_90").threads == 128  # Triton's default, as None is none


def test_errors_teach() -> None:
    with pytest.raises(Misuse, match=r"target='sm_1'.*gfx942"):
        aot.audit([("sm_1", add_launch())])
    with pytest.raises(Misuse, match=r"kernel=.*triton.jit"):
        aot.compile_for(len, "sm_80", (), {})
    with pytest.raises(triton.CompilationError, match="power of 2"):
        aot.compile_for(tiny.wrong_kernel, "sm_80", (torch.zeros(4),), {})
    with pytest.raises(RuntimeError, match="cannot read the compiled kernel"):
        machine_code.number(r"REG:(\d+)", "Resource usage: none")


def test_without_triton_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["triton"] = None
from pagedkv.optimized.audit import aot, interpret
for call in (lambda: aot.compile_for(len, "sm_80", (), {}), lambda: interpret.Interpreted(len)):
    try:
        call()
    except ImportError as error:
        assert 'pip install "pagedkv[gpu]"' in str(error), error
    else:
        raise AssertionError("no error")
"""
    root = Path(__file__).parents[2]
    path = os.pathsep.join(str(root / name) for name in ("spec", "optimized"))
    result: Any = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
