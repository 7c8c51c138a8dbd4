"""Addresses in TTIR: products in 32 bits are found wherever they hide, also in our own kernels once they are broken."""

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module, util
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton exists for Linux only")

from pagedkv.optimized.attention.shipped import Configuration, launch_for
from pagedkv.optimized.audit.address_check import arguments_of, kv_loads, narrow_products, places_of
from pagedkv.optimized.audit.aot import compiled_kernel
from pagedkv.optimized.audit.ttir import Value, parse
from pagedkv.optimized.device import shipped as pool
from pagedkv.optimized.launch import Launch

from tests.conformance.mutants.mutation import mutated_module

address_kernels: Any = import_module(".address_kernels", __package__)
GUILTY = sorted(name for name in vars(address_kernels) if name.endswith("_kernel") and name != "innocent_kernel")
TARGET = "gfx942"
"""TTIR is the same for all targets but for what a kernel asks of its own."""


def values_of(launch: Launch) -> list[Value]:
    return parse(compiled_kernel(launch, TARGET).asm["ttir"])


def tiny(name: str, wide: bool, stride: int = 4096) -> Launch:
    cache, table = torch.zeros(64), torch.zeros(64, dtype=torch.int32)
    kernel = getattr(address_kernels, name)
    return Launch(name, "", kernel, (1,), (cache, table, cache, stride), {"WIDE": wide})


@pytest.mark.parametrize("name", GUILTY)
def test_a_product_in_32_bits_is_found_and_one_in_64_is_not(name: str) -> None:
    found = narrow_products(values_of(tiny(name, wide=False)))
    assert len(found) == 1
    lines = Path(address_kernels.__file__).read_text(encoding="utf-8").splitlines()
    where = re.match(r"address_kernels\.py:(\d+): arith\.muli of an id and a stride in 32 bits", found[0])
    assert where is not None
    assert re.search(r"\* (stride_block|4096|tl\.num_programs)", lines[int(where[1]) - 1])
    assert narrow_products(values_of(tiny(name, wide=True))) == []


def test_a_stride_of_64_bits_hides_it_and_so_examples_are_small() -> None:
    assert narrow_products(values_of(tiny("block_kernel", wide=False, stride=2**40))) == []


def test_what_needs_no_64_bits_is_left_alone() -> None:
    assert narrow_products(values_of(tiny("innocent_kernel", wide=False))) == []


# Ours: each `.to(tl.int64)` of the kernels made a `.to(tl.int32)`.

KERNELS = "pagedkv.optimized.kernels"
WIDENING = ".to(tl.int64)"
USED_BY = {
    "decode": ("decode", "decode in splits", "decode in a mixed batch"),
    "prefill": ("prefill",),
    "merge": ("merge", "merge in a mixed batch"),
    "rows": ("decode", "prefill"),
    "tiles": ("decode", "prefill"),
    "write_kv": ("write",),
    "copy_blocks": ("copy_blocks",),
    "gather": ("gather",),
    "merge_attention": ("merge_attention",),
}
"""By module, the kernels of `Configuration` in which its lines are compiled."""
HARMLESS = {
    ("merge", "request = tl.program_id(0).to(tl.int64)"),  # nothing multiplies it
    ("copy_blocks", "pair = tl.program_id(0).to(tl.int64)"),  # times two: a grid has fewer than 2^31 programs
}


def widenings() -> Iterator[tuple[str, int]]:
    """Each place where one of our kernels makes a number 64-bit: the module, and the how many-th in it."""
    for module in USED_BY:
        yield from ((module, number) for number in range(source_of(module).count(WIDENING)))


def source_of(module: str) -> str:
    spec = util.find_spec(f"{KERNELS}.{module}")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def before(module: str, number: int) -> str:
    """The text of a module up to a widening, that one included."""
    parts = source_of(module).split(WIDENING)
    return WIDENING.join(parts[: number + 1]) + WIDENING


def line_of(module: str, number: int) -> str:
    text = before(module, number)
    return source_of(module)[text.rindex("\n") + 1 :].partition("\n")[0].partition("  #")[0].strip()


def is_found(module: str, number: int) -> bool:
    """Whether the kernels without this one widening are found to multiply in 32 bits, in some configuration."""
    text = before(module, number)
    broken = [(text, text.removesuffix(WIDENING) + ".to(tl.int32)")]
    for kernel in USED_BY[module]:
        for page in (16, 24, 64) if module == "tiles" else (16,):  # a tile of whole pages, of parts, within one
            group = 4 if kernel.startswith(("decode", "prefill")) else None
            attends = group or kernel.startswith("merge")
            configuration = Configuration(kernel, "float16", (64, 64), group, page, "all" if attends else None)
            launch = launch_for(configuration, TARGET)
            dependents = [launch.kernel.__module__] if module in ("rows", "tiles") else []
            mutant = getattr(mutated_module(f"{KERNELS}.{module}", broken, dependents), launch.kernel.__name__)
            if narrow_products(values_of(replace(launch, kernel=mutant))):
                return True
    return False


def test_every_kernel_is_broken() -> None:
    modules = {path.stem for path in Path(source_path()).glob("*.py")} - {"__init__"}
    assert set(USED_BY) == modules


def source_path() -> str:
    return str(Path(import_module(KERNELS).__file__ or "").parent)


@pytest.mark.parametrize(("module", "number"), list(widenings()))
def test_a_widening_that_is_taken_away_is_missed(module: str, number: int) -> None:
    assert is_found(module, number) == ((module, line_of(module, number)) not in HARMLESS)


# Which loads read the cache.


@pytest.mark.parametrize("kernel", ["decode", "prefill"])
def test_what_reads_the_cache_is_told_from_what_reads_the_table(kernel: str) -> None:
    values = values_of(launch_for(Configuration(kernel, "float16", (64, 64), 4, 16, "causal"), TARGET))
    assert arguments_of(kv_loads(values)) == {"key_cache", "value_cache"}
    text = source_of("tiles").splitlines()
    assert {name for name, _ in places_of(kv_loads(values))} == {"tiles.py"}
    assert {text[line - 1].split(" = ")[0].strip() for _, line in places_of(kv_loads(values))} == {"k", "v"}


def test_what_is_moved_is_read_and_what_is_summed_up_is_not() -> None:
    gather = values_of(launch_for(Configuration("gather", "float16", (64, 64), None, 16, None), TARGET))
    assert arguments_of(kv_loads(gather)) == {"cache"}
    for kernel, mask in (("merge", "causal"), ("write", None)):
        assert (
            kv_loads(values_of(launch_for(Configuration(kernel, "float16", (64, 64), None, None, mask), TARGET))) == []
        )


def test_ids_that_are_moved_are_no_keys_and_values() -> None:
    """A table is copied into another one through ids, as KV is; also where the ids are those of a stranger."""
    for kernel in ("grow_apply", "fork_apply", "release_push"):
        configuration = next(each for each in pool.configurations() if each.kernel == kernel)
        assert kv_loads(values_of(pool.launch_for(configuration, TARGET))) == []
    launch = tiny("block_kernel", wide=True)
    cache, table, out, stride = launch.args
    assert arguments_of(kv_loads(values_of(launch))) == {"cache"}
    for dtype in (torch.int32, torch.int64):
        assert kv_loads(values_of(replace(launch, args=(cache.to(dtype), table, out.to(dtype), stride)))) == []


# The reader of TTIR.


def test_names_of_one_branch_are_not_those_of_the_next() -> None:
    values = parse("""
module {
  tt.func public @f(%p: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {
    %r = scf.if %n -> (i32) {
      %x = arith.constant 1 : i32
      scf.yield %x : i32
    } else {
      %x = tt.get_program_id x : i32
      scf.yield %x : i32
    }
    tt.return
  }
}
""")
    joined = next(value for value in values if value.operation == "carried")
    assert [source.operation for source in joined.sources] == ["arith.constant", "tt.get_program_id"]


@pytest.mark.parametrize(
    "text",
    ["  tt.func @f(%p: i32) {\n    %a = arith.addi %p, %q : i32\n  }", "  tt.func @f(%p: i32) {\n    what is this"],
)
def test_a_text_that_is_not_understood_is_no_pass(text: str) -> None:
    with pytest.raises(ValueError, match="TTIR not understood"):
        parse(text)
