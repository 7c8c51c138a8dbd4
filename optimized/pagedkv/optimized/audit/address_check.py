"""Addresses in the compiler's own words: where one is multiplied in 32 bits, and which loads read the KV cache.

A block id times a stride passes 2^31 in any pool worth having, and no tiny shape shows it. So it is looked up in the
TTIR of the compiled kernel: on the way to a pointer an id has to be multiplied by a stride in 64 bits. What a quotient,
a remainder, a clamp or a loop counter gives is a position or a block number again, which 32 bits hold by contract:
products before it are no part of the offset.

Strides that are given as 64-bit numbers make every product a 64-bit one. So the examples that the kernel is compiled
with must have strides that fit 32 bits; those of a small tensor do.
"""

from collections.abc import Sequence
from typing import Final

from pagedkv.optimized.audit.machine_code import Place
from pagedkv.optimized.audit.ttir import Value, upstream

SHAPING: Final = ("arith.extsi", "arith.extui", "arith.trunci", "tt.splat", "tt.broadcast", "tt.expand_dims",
                  "tt.reshape", "tt.trans", "ttg.convert_layout")  # fmt: skip
"""What changes the type or the shape of a number, and not its value."""
CLAMPING: Final = ("arith.maxsi", "arith.minsi", "arith.maxui", "arith.minui", "arith.select")
DIVIDING: Final = ("arith.divsi", "arith.divui", "arith.shrsi", "arith.shrui")
PRODUCTS: Final = ("arith.muli", "arith.shli")
LINEAR: Final = (*SHAPING, *PRODUCTS, "arith.addi", "arith.subi", "arith.select", "carried", "passed")
"""What an offset is made of, so that a product in it is a part of the offset."""
POINTER: Final = (*SHAPING, "tt.addptr", "arith.select", "carried", "passed", "tt.bitcast", "tt.make_tensor_descriptor")
LOADS: Final = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather")
IDS: Final = (*LOADS, "tt.get_program_id", "tt.atomic_rmw", "tt.atomic_cas")
NUMBERS: Final = ("!tt.ptr<i32>", "!tt.ptr<i64>")
"""Tensors of ids, lengths and slots. Keys and values have elements of 16 bits or less, or floats."""
MOVED: Final = (*SHAPING, "arith.truncf", "arith.extf", "arith.bitcast", "tt.bitcast")
DATA: Final = ("tt.dot", *IDS)


def narrow_products(values: Sequence[Value]) -> list[str]:
    """Where an id is multiplied in less than 64 bits on the way to an address: the line, and what is multiplied.

    An id is what is computed from memory or from the id of the program. It counts if it is multiplied by what is made
    of the kernel's arguments and the size of its grid, which are strides and sizes; and where it is close to what was
    loaded, by a constant, too. The number of a lane, or of a turn of a loop, counts where the stride is
    an argument, which may be as long as it likes.
    """
    found = []
    for value in values:
        if value.operation == "tt.addptr":
            found += [each for each in upstream(value.sources[1], LINEAR) if each.operation in PRODUCTS]
    told = []
    for product in dict.fromkeys(found):
        bits = product.bits
        if bits is not None and bits < 64 and _is_id_times_stride(product):
            where = f"{product.place[0]}:{product.place[1]}" if product.place else "a line that is not known"
            told.append(f"{where}: {product.operation} of an id and a stride in {bits} bits")
    return list(dict.fromkeys(told))


def _is_id_times_stride(product: Value) -> bool:
    a, b = product.sources
    for one, other in ((a, b), (b, a)):
        if _is_id(one) and not _is_id(other) and (_is_stride(other) or _is_close_to_loaded(one)):
            return True
        if _is_lane(one) and not _is_lane(other) and _is_argument(other):
            return True
    return False


def _is_id(value: Value) -> bool:
    return any(each.operation in IDS for each in upstream(value))


def _is_lane(value: Value) -> bool:
    return any(each.operation in ("tt.make_range", "counter") for each in upstream(value))


def _is_argument(value: Value) -> bool:
    return any(each.operation == "argument" for each in upstream(value))


def _is_stride(value: Value) -> bool:
    return any(each.operation in ("argument", "tt.get_num_programs") for each in upstream(value))


def _is_close_to_loaded(value: Value) -> bool:
    """Whether it is what was loaded, or that clamped, or one after it, or of a slot that was loaded its block.

    The distance of two numbers is close to neither, nor is a lane that was clamped by a length.
    """
    if value.operation in LOADS:
        return True
    if value.operation in (*SHAPING, *DIVIDING):
        return _is_close_to_loaded(value.sources[0])
    chosen = value.sources[1:] if value.operation == "arith.select" else value.sources
    moving = [each for each in chosen if any(map(_varies, upstream(each)))]
    if value.operation == "arith.addi":
        return any(map(_is_close_to_loaded, moving))
    follows = value.operation in CLAMPING or (value.operation == "arith.subi" and moving == value.sources[:1])
    return follows and bool(moving) and all(map(_is_close_to_loaded, moving))


def _varies(value: Value) -> bool:
    return value.operation in (*IDS, "tt.make_range", "counter")


def kv_loads(values: Sequence[Value]) -> list[Value]:
    """The loads of keys and values.

    Those in a loop that feed a matrix product in it. In a kernel without such: those whose address depends on another
    load, as that of a block depends on its table, and which are stored as they are, that is, moved. Block ids and
    lengths are moved in the same way, and are told by their tensor; see `NUMBERS`.
    """
    fed = [load for value in values if value.operation == "tt.dot" for load in _fed_by(value)]
    if not fed:
        stored = (value.sources[1] for value in values if value.operation == "tt.store")
        moved = (each for source in stored for each in upstream(source, MOVED) if each.operation in LOADS)
        fed = [load for load in moved if _goes_through_a_table(load) and not _is_of_numbers(load)]
    return list(dict.fromkeys(fed))


def _goes_through_a_table(load: Value) -> bool:
    return any(each.operation in LOADS for each in upstream(_pointer(load)))


def _is_of_numbers(load: Value) -> bool:
    return any(each.operation == "argument" and each.type in NUMBERS for each in upstream(_pointer(load), POINTER))


def _fed_by(dot: Value) -> list[Value]:
    """The loads in the loops of a product whose data are its factors."""
    found, seen, waiting = [], set[int](), list(dot.sources[:2])
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if each.operation in LOADS and each.loops and each.loops == dot.loops:
            found.append(each)
        elif each.operation not in DATA:
            waiting += each.sources
    return found


def places_of(loads: Sequence[Value]) -> set[Place]:
    """The lines that the loads stand on."""
    return {load.place for load in loads if load.place}


def arguments_of(loads: Sequence[Value]) -> set[str]:
    """The names of the pointers that the loads go through."""
    found = (each for load in loads for each in upstream(_pointer(load), POINTER))
    return {each.name for each in found if each.operation == "argument" and each.type.startswith("!tt.")}


def _pointer(load: Value) -> Value:
    return load.sources[0]
