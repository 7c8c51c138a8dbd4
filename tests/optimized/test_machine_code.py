"""Reading machine code: widths of loads, loops, classes of instructions, and how many programs fit."""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagedkv.optimized.audit.aot import compiled_kernel
from pagedkv.optimized.audit.machine_code import (
    Instruction, MachineCode, inner_loop, instruction_mix, load_bits, loops, matrix_instructions, read_amdgcn,
    read_assembly, read_sass, width_of_loads,
)  # fmt: skip
from pagedkv.optimized.audit.targets import TARGETS, Target, occupancy
from pagedkv.optimized.launch import Launch

SASS = """
.text.kernel:
	//## File "/somewhere/kernel.py", line 10
        /*0000*/                   LDG.E R5, desc[UR10][R4.64] ;
        /*0010*/               @P0 BRA `(.L_x_1) ;
.L_x_0:
	//## File "/somewhere/kernel.py", line 20
        /*0020*/                   LDGSTS.E.BYPASS.128 [R4], desc[UR10][R10.64], P1 ;
        /*0030*/              @!P1 LDG.E.64 R6, desc[UR10][R4.64] ;
.L_x_2:
	//## File "/somewhere/other.py", line 5
        /*0040*/                   MUFU.EX2 R1, R2 ;
        /*0050*/               @P2 BRA `(.L_x_2) ;
        /*0060*/                   HGMMA.64x64x16.F32.BF16 R24, R4, gdesc[UR8], R24 ;
        /*0070*/                   NOP ;
        /*0080*/               @P1 BRA `(.L_x_0) ;
.L_x_1:
        /*0090*/                   EXIT ;
.L_x_3:
        /*00a0*/                   BRA `(.L_x_3);
"""
ASSEMBLY = """
	.file	1 "/somewhere" "kernel.py"
	.loc	1 10 5                          ; kernel.py:10:5
	global_load_dword v1, v[2:3], off
.LBB0_1:
	.loc	1 20 5                          ; kernel.py:20:5
	buffer_load_dwordx4 v[2:5], v1, s[4:7], 0 offen
	v_mfma_f32_16x16x16_bf16 a[0:3], v[0:1], v[2:3], a[0:3]
	s_nop 1
	s_cbranch_scc1 .LBB0_1
	s_endpgm
"""


def code(text: tuple[list[Instruction], dict[str, int]]) -> MachineCode:
    return MachineCode(0, 0, 0, 128, *text)


def test_sass_is_read_with_lines_labels_and_loops() -> None:
    found = code(read_sass(SASS))
    assert [each.mnemonic.split(".")[0] for each in found.instructions] == [
        "LDG", "BRA", "LDGSTS", "LDG", "MUFU", "BRA", "HGMMA", "BRA", "EXIT", "BRA",
    ]  # fmt: skip
    assert found.instructions[2].place == ("kernel.py", 20)
    assert loops(found) == [range(2, 8), range(4, 6)]  # a jump to itself is where a kernel ends
    assert width_of_loads(found, {("kernel.py", 20)}) == (64, 128)
    assert width_of_loads(found, {("kernel.py", 10)}) == (32, 32)
    assert width_of_loads(found, {("other.py", 5)}) is None
    assert matrix_instructions(found) == ("HGMMA.64x64x16.F32.BF16",)
    inner = inner_loop(found, {("kernel.py", 20)})
    assert instruction_mix(inner) == {"matrix": 1, "global memory": 2, "control": 1}  # not the loop inside
    assert inner_loop(found, {("kernel.py", 10)}) == []


def test_assembly_is_read_the_same_way() -> None:
    found = code(read_assembly(ASSEMBLY))
    assert [each.place for each in found.instructions[:2]] == [("kernel.py", 10), ("kernel.py", 20)]
    assert loops(found) == [range(1, 4)]
    assert width_of_loads(found, {("kernel.py", 20)}) == (128, 128)
    assert matrix_instructions(found) == ("v_mfma_f32_16x16x16_bf16",)


def test_of_two_loops_the_one_that_multiplies_most_and_then_the_shorter_is_shown() -> None:
    load, dot = Instruction("LDG.E.128", ("k.py", 1)), Instruction("HMMA.16816.F32")
    pad, back = Instruction("IADD3"), [Instruction("BRA", None, f".L{n}") for n in range(3)]
    body = [load, dot, pad, pad, back[0], load, dot, back[1], load, back[2]]
    found = MachineCode(0, 0, 0, 32, body, {".L0": 0, ".L1": 5, ".L2": 8})
    assert inner_loop(found, {("k.py", 1)}) == [load, dot, back[1]]


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("LDG.E", 32), ("LDG.E.U16", 16), ("LDG.E.U8", 8), ("LDG.E.64", 64), ("LDGSTS.E.BYPASS.LTC128B.128", 128),
        ("LDG.E.128.CONSTANT", 128), ("UTMALDG.2D", 128), ("LDGDEPBAR", None), ("LDS.128", None), ("STG.E.128", None),
        ("global_load_dwordx4", 128), ("buffer_load_ushort", 16), ("global_load_ubyte", 8), ("ds_read_b128", None),
        ("buffer_load_short_d16_hi", 16), ("buffer_load_ubyte_d16", 8), ("global_store_dwordx4", None),
    ],
)  # fmt: skip
def test_widths_of_loads(name: str, bits: int | None) -> None:
    assert load_bits(Instruction(name)) == bits


@pytest.fixture
def compile_tiny() -> Callable[[str], Launch]:
    torch = pytest.importorskip("torch", reason="example arguments are torch tensors")
    pytest.importorskip("triton", reason="Triton exists for Linux only")
    tiny: Any = import_module(".tiny_kernels", __package__)
    x = torch.zeros(2 * 64 * 64)

    def launch(name: str) -> Launch:
        args = (x.half(),) * 3 if name == "product_kernel" else (x, x)
        return Launch(name, "", getattr(tiny, name), (1,), args, {"SIZE": 64, "num_warps": 4})

    return launch


# How many programs fit.


@given(st.sampled_from(list(TARGETS.values())), st.integers(1, 512), st.integers(0, 300 * 1024), st.integers(1, 32))
def test_occupancy_is_a_share_that_falls_with_what_a_program_takes(
    target: Target, registers: int, shared_bytes: int, warps: int
) -> None:
    def share(registers: int, shared_bytes: int) -> float:
        return occupancy(target, registers, shared_bytes, warps * target.warp_size)

    found = share(registers, shared_bytes)
    assert 0 <= found <= 1
    assert (found * target.max_warps) % warps == pytest.approx(0)
    assert share(registers + 8, shared_bytes) <= found
    assert share(registers, shared_bytes + 1024) <= found


@pytest.mark.parametrize(
    ("name", "registers", "shared_bytes", "threads", "warps"),
    [
        ("sm_80", 32, 0, 128, 64), ("sm_80", 33, 0, 128, 48), ("sm_90", 168, 0, 128, 12), ("sm_90", 255, 0, 256, 8),
        ("sm_90", 128, 100 * 1024, 128, 8), ("sm_80", 32, 163 * 1024, 128, 4), ("sm_90", 255, 0, 512, 0),
        ("sm_100", 32, 0, 32, 32), ("gfx942", 64, 0, 256, 32), ("gfx942", 200, 0, 256, 8),
        ("gfx942", 64, 65536, 256, 4),
    ],
)  # fmt: skip
def test_occupancy_by_hand(name: str, registers: int, shared_bytes: int, threads: int, warps: int) -> None:
    """65,536 registers for 32 lanes, in steps of 8 x 32 a warp, on 4 partitions; 512 a lane on AMD's."""
    target = TARGETS[name]
    assert occupancy(target, registers, shared_bytes, threads) * target.max_warps == warps


@pytest.mark.parametrize("name", ["product_kernel", "hungry_kernel"])
def test_occupancy_is_what_llvm_says(name: str, compile_tiny: Callable[[str], Launch]) -> None:
    compiled = compiled_kernel(compile_tiny(name), "gfx942")
    told = re.search(r"; Occupancy: (\d+)", compiled.asm["amdgcn"])
    assert told is not None
    machine = read_amdgcn(compiled)
    ours = occupancy(TARGETS["gfx942"], machine.registers, machine.static_bytes, machine.threads)
    assert ours * TARGETS["gfx942"].max_warps / 4 == int(told[1])
