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
from pagedkv.optimized.audit import aot
from pagedkv.optimized.audit.interpret import Interpreted
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


@pytest.mark.parametrize("target", aot.TARGETS)
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


@pytest.mark.parametrize("target", aot.TARGETS)
def test_products_take_shared_memory(target: str) -> None:
    x = torch.zeros(64, 64, dtype=torch.float16)
    found = aot.compile_for(tiny.product_kernel, target, (x, x, x), {"SIZE": 64}, num_warps=4)
    assert found.shared_bytes >= 64 * 64 * 2
    assert found.problems() == []


def test_spills_are_seen_where_registers_are_limited() -> None:
    x = torch.zeros(2 * 64 * 64)
    found = [
        aot.compile_for(tiny.hungry_kernel, "sm_90", (x, x), {"SIZE": 64, "maxnreg": maxnreg}, num_warps=4)
        for maxnreg in (255, 32)
    ]
    assert found[0].spill_bytes == 0 < found[1].spill_bytes
    assert found[0].registers > 32 >= found[1].registers
    assert found[1].problems() == [f"spills {found[1].spill_bytes} bytes a thread"]


def test_spills_are_seen_where_a_tile_is_too_large() -> None:
    x = torch.zeros(2 * 128 * 128)
    small, large = (
        aot.compile_for(tiny.hungry_kernel, "gfx942", (x, x), {"SIZE": size}, num_warps=1) for size in (16, 128)
    )
    assert small.spill_bytes == 0 < large.spill_bytes


def test_too_much_shared_memory_is_a_problem() -> None:
    found = aot.audit_launch(add_launch(), "gfx942")
    assert dataclasses.replace(found, shared_bytes=64 * 1024).problems() == []
    assert "65537 bytes of shared memory" in dataclasses.replace(found, shared_bytes=64 * 1024 + 1).problems()[0]


def test_instructions_are_the_disassembled_words_without_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs: list[str] = []
    run = aot._output

    def keep(*command: str) -> str:
        outputs.append(run(*command))
        return outputs[-1]

    monkeypatch.setattr(aot, "_output", keep)
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


def test_audit_is_every_configuration_on_every_chosen_target() -> None:
    x = torch.zeros(64)
    copy = Launch("copy", "", tiny.unmasked_kernel, (1,), (x, x), {"PIECE": 64})
    launches = [add_launch(), add_launch(512), copy]
    seen: list[aot.KernelAudit] = []
    audits = aot.audit(["sm_80", "gfx942"], ["add"], seen.append, launches)
    assert audits == seen
    assert [(a.target, a.kernel, a.configuration) for a in audits] == [
        (target, "add", f"piece={piece}") for target in ("sm_80", "gfx942") for piece in (256, 512)
    ]
    assert {a.target for a in aot.audit(launches=[copy])} == set(aot.TARGETS)


def test_errors_teach() -> None:
    with pytest.raises(Misuse, match=r"target='sm_1'.*gfx942"):
        aot.audit(["sm_1"], launches=[add_launch()])
    with pytest.raises(Misuse, match=r"kernels='substract'.*add"):
        aot.audit(["sm_80"], ["substract"], launches=[add_launch()])
    with pytest.raises(Misuse, match=r"kernel=.*triton.jit"):
        aot.compile_for(len, "sm_80", (), {})
    with pytest.raises(triton.CompilationError, match="power of 2"):
        aot.compile_for(tiny.wrong_kernel, "sm_80", (torch.zeros(4),), {})
    with pytest.raises(RuntimeError, match="cannot read the compiled kernel"):
        aot._number(r"REG:(\d+)", "Resource usage: none")


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
