"""What the machine code of a compiled kernel tells: registers, spills, loops, how wide it loads, what multiplies.

NVIDIA's is read with the `cuobjdump` and `nvdisasm` that Triton brings, AMD's is the assembly that Triton keeps. Both
say from which line of the source an instruction comes, which is how a load of KV is told from one of a block table.
"""

import re
import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from pagedkv.optimized.lazy_triton import triton_module

Place: TypeAlias = tuple[str, int]
"""A line of source: the name of the file without its folder, the line."""

PADDING: Final = {"NOP", "s_nop", "s_code_end"}
MATRIX: Final = re.compile(r"(?:[A-Z]*MMA\b|v_s?mfma)")
"""HMMA and IMMA; HGMMA, that is wgmma, of sm_90; UTCHMMA, that is tcgen05, of sm_100; v_mfma and v_smfmac of AMD."""
GLOBAL_LOAD: Final = re.compile(r"(?:LDG(?!DEPBAR)|LDGSTS|LD\b|UBLKCP|UTMALDG|(?:global|buffer|flat)_load_)")
AMD_BITS: Final = {"dwordx4": 128, "dwordx3": 96, "dwordx2": 64, "dword": 32, "ushort": 16, "sshort": 16, "short": 16}


class Instruction(NamedTuple):
    """One machine instruction."""

    mnemonic: str
    place: Place | None = None
    jump: str = ""
    """The label that it branches to."""


class MachineCode(NamedTuple):
    """A compiled kernel."""

    registers: int
    """32-bit vector registers a thread."""
    spill_bytes: int
    """A thread."""
    static_bytes: int
    """Shared memory that the machine code itself declares, in bytes a program."""
    threads: int
    """A program."""
    instructions: Sequence[Instruction]
    """Padding left out."""
    labels: Mapping[str, int]
    """For each label the index of the instruction that it stands before."""


def read_cubin(compiled: Any) -> MachineCode:
    """The machine code that Triton compiled for NVIDIA."""
    tools = triton_module("triton.knobs").nvidia
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(compiled.asm["cubin"])
        usage = output(tools.cuobjdump.path, "--dump-resource-usage", str(cubin))
        code = output(tools.nvdisasm.path, "--print-code", "--print-line-info", str(cubin))
    _, _, of_kernel = usage.partition(f"Function {compiled.name}:")
    stack, local = number(r"\bSTACK:(\d+)", of_kernel), number(r"\bLOCAL:(\d+)", of_kernel)
    return MachineCode(
        number(r"\bREG:(\d+)", of_kernel),
        stack + local,
        number(r"\bSHARED:(\d+)", of_kernel),
        number(r"\.(?:req|max)ntid (\d+)", compiled.asm["ptx"]),
        *read_sass(code),
    )


def read_amdgcn(compiled: Any) -> MachineCode:
    """The machine code that Triton compiled for AMD."""
    text: str = compiled.asm["amdgcn"]
    scratch, spilled = (
        number(rf"\.{key}:\s+(\d+)", text) for key in ("private_segment_fixed_size", "vgpr_spill_count")
    )
    return MachineCode(
        number(r"\.vgpr_count:\s+(\d+)", text),
        max(scratch, 4 * spilled),
        number(r"\.group_segment_fixed_size:\s+(\d+)", text),
        number(r"\.max_flat_workgroup_size:\s+(\d+)", text),
        *read_assembly(text),
    )


SASS: Final = re.compile(
    r"""^(?:(?P<label>\.L\w*):
    |\s*//\#\#\ File\ "(?P<file>[^"]*)",\ line\ (?P<line>\d+)
    |\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<mnemonic>[A-Z][\w.]*)(?P<rest>[^;]*))""",
    re.MULTILINE | re.VERBOSE,
)
ASSEMBLY: Final = re.compile(
    r"""^(?:(?P<label>\.L\w*):
    |\s*\.loc\s+(?P<file>\d+)\ (?P<line>\d+)
    |\t(?P<mnemonic>(?:s|v|ds|buffer|global|flat|scratch)_\w+)(?P<rest>[^;\n]*))""",
    re.MULTILINE | re.VERBOSE,
)


def read_sass(text: str) -> tuple[list[Instruction], dict[str, int]]:
    """The instructions and labels of NVIDIA's disassembly."""
    return _read(SASS, text, {})


def read_assembly(text: str) -> tuple[list[Instruction], dict[str, int]]:
    """The instructions and labels of AMD's assembly, which numbers its files."""
    return _read(ASSEMBLY, text, dict(re.findall(r'^\s*\.file\s+(\d+) (?:"[^"]*" )?"([^"]*)"', text, re.MULTILINE)))


def _read(grammar: re.Pattern[str], text: str, files: Mapping[str, str]) -> tuple[list[Instruction], dict[str, int]]:
    instructions, labels, place = list[Instruction](), dict[str, int](), None
    for match in grammar.finditer(text):
        if match["label"]:
            labels[match["label"]] = len(instructions)
        elif match["line"]:
            place = Path(files.get(match["file"], match["file"])).name, int(match["line"])
        elif match["mnemonic"] not in PADDING:
            jump = re.search(r"\.L\w+", match["rest"])
            instructions.append(Instruction(match["mnemonic"], place, jump[0] if jump else ""))
    return instructions, labels


def load_bits(instruction: Instruction) -> int | None:
    """How many bits a thread gets by one load from global memory; None for another instruction.

    A bulk copy of NVIDIA's (TMA) moves any multiple of 16 bytes, and counts as 128.

    >>> [load_bits(Instruction(name)) for name in ("LDGSTS.E.BYPASS.128", "LDG.E", "buffer_load_dwordx2", "LDS")]
    [128, 32, 64, None]
    """
    name = instruction.mnemonic
    if not GLOBAL_LOAD.match(name):
        return None
    if name.startswith(("UBLKCP", "UTMALDG")):
        return 128
    if "_load_" in name:
        kinds = (part for part in name.split("_") if part in AMD_BITS)
        return AMD_BITS[next(kinds)] if "byte" not in name else 8
    size = re.search(r"\.[US]?(256|128|64|16|8)\b", name)
    return int(size[1]) if size else 32


def width_of_loads(code: MachineCode, places: Collection[Place]) -> tuple[int, int] | None:
    """The narrowest and the widest load from global memory that these lines make, in bits a thread; None: no load."""
    widths = [bits for each in code.instructions if each.place in places and (bits := load_bits(each)) is not None]
    return (min(widths), max(widths)) if widths else None


def matrix_instructions(code: MachineCode) -> tuple[str, ...]:
    """The matrix instructions that occur, by name."""
    return tuple(sorted({each.mnemonic for each in code.instructions if MATRIX.match(each.mnemonic)}))


def loops(code: MachineCode) -> list[range]:
    """From the target of each backward branch to the branch, as indices of instructions; a halt is no loop."""
    found = set[range]()
    for index, each in enumerate(code.instructions):
        start = code.labels.get(each.jump, index)
        if start < index:
            found.add(range(start, index + 1))
    return sorted(found, key=lambda loop: (loop.start, loop.stop))


def inner_loop(code: MachineCode, places: Collection[Place]) -> list[Instruction]:
    """One turn of the innermost loop that loads from these lines, without the loops inside it; empty if there is none.

    Of several the one with the most matrix instructions, then one with exponentials, as where softmax is computed, and
    then the shortest: that which masks nothing.
    """
    every = loops(code)

    def own(loop: range) -> list[Instruction]:
        inside = {i for other in every if other != loop and _within(other, loop) for i in other}
        return [code.instructions[i] for i in loop if i not in inside]

    bodies = [own(loop) for loop in every]
    bodies = [body for body in bodies if any(i.place in places and load_bits(i) is not None for i in body)]

    def rank(body: list[Instruction]) -> tuple[int, bool, int]:
        matrix = sum(bool(MATRIX.match(i.mnemonic)) for i in body)
        return -matrix, not any(i.mnemonic.startswith("MUFU") for i in body), len(body)

    return min(bodies, key=rank, default=[])


def _within(inner: range, outer: range) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop


CLASSES: Final[Mapping[str, str]] = {
    "matrix": r"[A-Z]*MMA\b|WARPGROUP",
    "global memory": r"LDG(?!DEPBAR)|STG|LD\b|ST\b|RED\b|ATOM(?!S)|UBLK|UTMA",
    "on-chip memory": r"LDS|STS|ATOMS|LDTM|STTM|SYNCS",
    "spilled": r"LDL|STL",
    "shuffle": r"SHFL|MATCH|VOTE|R2UR|C?REDUX",
    "special": r"MUFU",
    "conversion": r"F2F|F2I|I2F|FRND|I2I|U?PRMT",
    "float": r"FH?(?:ADD|MUL|FMA|SEL|SET|MNMX|CHK)|H(?:ADD|MUL|FMA|SET|MNMX)|D(?:ADD|MUL|FMA|SETP)",
    "move": r"U?MOV|U?IMAD\.MOV|U?SEL|CS2R|S2U?R|P2R|R2P|U?LDC|UP2UR|UR2UP|U?PLOP3|VOTEU",
    "integer": r"[UV]*(?:IADD|IMAD|IMUL|ISETP|IMNMX|IABS|LEA|SHF|SHL|SHR|LOP|SGXT|BMSK|FLO|POPC|BREV|IDP)",
    "control": r"U?BRA|BAR|BSSY|BSYNC|BREAK|EXIT|CALL|RET|WARPSYNC|DEPBAR|LDGDEPBAR|ERRBAR|MEMBAR|FENCE|NANOSLEEP|"
    r"YIELD|ARRIVES|U?ELECT|BRX|CCTL|KILL|BMOV|UCGABAR|ACQBULK|PREEXIT|BPT|"
    r"UTCATOM|UTCBAR|UVIRTCOUNT",
}
"""Classes of NVIDIA's instructions by the beginning of their names; the first that fits."""


def instruction_mix(instructions: Sequence[Instruction]) -> dict[str, int]:
    """How many instructions there are of each class of NVIDIA's, in the order of `CLASSES`; empty classes left out.

    >>> instruction_mix([Instruction("HMMA.16816.F32"), Instruction("LDGSTS.E.128"), Instruction("LDGDEPBAR")])
    {'matrix': 1, 'global memory': 1, 'control': 1}
    """
    kinds = [next((k for k, names in CLASSES.items() if re.match(names, i.mnemonic)), "other") for i in instructions]
    return {kind: kinds.count(kind) for kind in (*CLASSES, "other") if kind in kinds}


def number(pattern: str, text: str) -> int:
    """The first match; an output that lacks it is not understood, which is no zero. Raises `RuntimeError`."""
    match = re.search(pattern, text)
    if match is None:
        raise RuntimeError(f"cannot read the compiled kernel: no {pattern!r} in {text[:200]!r}")
    return int(match.group(1))


def output(*command: str) -> str:
    """What a command writes to stdout; `subprocess.CalledProcessError` if it fails."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
