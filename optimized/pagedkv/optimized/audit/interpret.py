"""Running `@triton.jit` kernels on the CPU, in Triton's interpreter, in an ordinary process.

Triton decides once, at import and by the environment variable `TRITON_INTERPRET`, whether a process interprets or
compiles. Tests want both: interpret a kernel, and compile the same kernel for a GPU that is not there. `Interpreted`
gives an unmodified kernel the interpreter's meaning for the length of a launch, and leaves Triton as it was.

    Interpreted(kernel)[grid](*args, **constants)

On top of that it can run the programs of a grid in any order (`ordered`), record what they touch (`recording`), and
it refuses every access outside the tensors that were passed, where a GPU would silently read a neighbour.

What it does not show: races within one program, and how a tensor core rounds inside a product (float32 here). Other
numbers that it computes otherwise than a GPU are mended, see `pagedkv.optimized.audit.interpreted_numbers`. A program
takes milliseconds.
"""

import ast
import inspect
import math
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from pagedkv.optimized.audit.access_log import Access, AccessLog, Extent, LaunchAccess, Program, ProgramAccess, spans_of
from pagedkv.optimized.audit.interpreted_numbers import operations
from pagedkv.optimized.lazy_triton import TRITON_LOCK, triton_module
from pagedkv.spec.words import Misuse

Grid: TypeAlias = tuple[int, ...]
"""The number of programs along each of one to three axes."""
ProgramOrder: TypeAlias = Callable[[list[Program]], Sequence[Program]]
"""From the programs of a grid, axis 2 fastest, to the same programs in the order in which they run."""


class OutOfBounds(IndexError):
    """A program touched bytes outside every tensor that its launch was given. Nothing was read or written there."""


class InterpretedError(RuntimeError):
    """A kernel failed while it was interpreted; the cause says how, this says in which program."""


class Interpreted:
    """A `@triton.jit` kernel with the calling convention of the original, run by the interpreter.

    Tensors must be on the CPU, and stores go to the caller's tensors. Options such as `num_warps` are ignored. The
    functions that the kernel calls are interpreted as well. Launches of several threads wait for each other.
    """

    def __init__(self, kernel: Any, program_order: ProgramOrder | None = None, reached: Sequence[Any] = ()) -> None:
        """`reached`: tensors beside the arguments that the kernel may touch, as its arguments hold their addresses."""
        jit_function = triton_module("triton.runtime.jit").JITFunction
        if not isinstance(kernel, jit_function):
            raise Misuse("kernel", kernel, "a function decorated with @triton.jit, without TRITON_INTERPRET=1")
        self.kernel = kernel
        self.program_order = program_order
        self.reached = {f"reached[{i}]": tensor for i, tensor in enumerate(reached)}

    def __getitem__(self, grid: Grid | Callable[[dict[str, Any]], Grid]) -> Callable[..., None]:
        """The launcher for a grid of one to three axes, or for a function of the arguments that gives one.

        Raises `Misuse` for a tensor that is not on the CPU, `TypeError` for arguments that do not fit the kernel,
        `OutOfBounds` for an access outside the tensors, `InterpretedError` where the kernel itself fails.
        """

        def launch(*args: Any, **kwargs: Any) -> None:
            names = {parameter.name for parameter in self.kernel.params}
            bound = inspect.getcallargs(self.kernel.fn, *args, **{k: v for k, v in kwargs.items() if k in names})
            programs = _programs(grid(bound) if callable(grid) else grid)
            order = self.program_order or _STATE.program_order
            ran = programs if order is None else list(order(list(programs)))
            if sorted(ran) != programs:
                raise Misuse("program_order", ran, "each program of the grid once")
            if not programs:  # as on a GPU, an empty grid launches nothing
                return
            with TRITON_LOCK:
                _run(self.kernel, bound, self.reached, ran)

        return launch


def shuffled(seed: int) -> ProgramOrder:
    """A pseudo-random order of the programs, the same for the same seed and grid."""

    def order(programs: list[Program]) -> list[Program]:
        random.Random(seed).shuffle(programs)
        return programs

    return order


@contextmanager
def ordered(program_order: ProgramOrder) -> Iterator[None]:
    """Interpreted launches inside run their programs in this order, unless their `Interpreted` names its own."""
    before, _STATE.program_order = _STATE.program_order, program_order
    try:
        yield
    finally:
        _STATE.program_order = before


@contextmanager
def recording() -> Iterator[AccessLog]:
    """Record the bytes that each program of the interpreted launches inside touches; see `AccessLog.conflicts`."""
    before, _STATE.log = _STATE.log, AccessLog()
    try:
        yield _STATE.log
    finally:
        _STATE.log = before


class _State(threading.local):
    """What the context managers of one thread have set."""

    program_order: ProgramOrder | None = None
    log: AccessLog | None = None


_STATE = _State()
_CODE: dict[str, CodeType] = {}


def _programs(grid: Grid) -> list[Program]:
    """All programs of a grid, in ascending order."""
    if not 1 <= len(grid) <= 3 or any(n < 0 for n in grid):
        raise Misuse("grid", grid, "one to three integers >= 0")
    return [(int(i[0]), int(i[1]), int(i[2])) for i in np.ndindex(*grid, *(1,) * (3 - len(grid)))]


def _run(kernel: Any, bound: dict[str, Any], reached: dict[str, Any], programs: Sequence[Program]) -> None:
    """Run the programs, with Triton's language patched meanwhile."""
    interpreter = triton_module("triton.runtime.interpreter")
    builder = interpreter.interpreter_builder
    extents = tuple(_extent(name, value) for name, value in {**bound, **reached}.items() if hasattr(value, "data_ptr"))
    launch = LaunchAccess(kernel.__name__, extents)
    if _STATE.log is not None:
        _STATE.log.launches.append(launch)
    constants = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
    with _interpreting(), _building(builder, launch), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NaN and overflow are values, as on a GPU
        values = {k: v if k in constants else interpreter._implicit_cvt(_as_passed(v)) for k, v in bound.items()}
        function = _interpretable(kernel)
        builder.set_grid_dim(*(max(axis) + 1 for axis in zip(*programs, strict=True)))
        for program in programs:
            launch.programs.append(ProgramAccess(program))
            builder.set_grid_idx(*program)
            try:
                function(**values)
            except OutOfBounds:
                raise
            except Exception as error:
                raise InterpretedError(f"{kernel.__name__}, program {program}: {error!r}") from error


def _extent(name: str, tensor: Any) -> Extent:
    """The bytes from the first to the last element of a CPU tensor."""
    if tensor.device.type != "cpu":
        raise Misuse(name, tensor.device, "a tensor on the CPU, to be interpreted")
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    num_elements = last + 1 if math.prod(tensor.shape) else 0
    return Extent(name, tensor.data_ptr(), tensor.data_ptr() + num_elements * tensor.element_size())


def _as_passed(value: Any) -> Any:
    """A launch passes floats as float32."""
    return float(np.float32(value)) if isinstance(value, float) else value


def _interpretable(kernel: Any) -> Callable[..., Any]:
    """The Python function of a kernel, rewritten as the interpreter wants it.

    The interpreter's own rewriting adds its names to the module of the kernel; this one works on a copy of the
    module's globals, made anew each time so that a test may replace a helper.
    """
    interpreter = triton_module("triton.runtime.interpreter")
    source: str = kernel.src
    if source not in _CODE:
        tree = interpreter.ASTTransformer().visit(ast.parse(source))
        path, line = triton_module("triton.runtime.jit").get_jit_fn_file_line(kernel)
        ast.increment_lineno(ast.fix_missing_locations(tree), line - 1)
        _CODE[source] = compile(tree, path, "exec")
    closure = inspect.getclosurevars(kernel.fn).nonlocals
    scope = {**kernel.fn.__globals__, **closure, "interpreter_semantic": interpreter.interpreter_semantic}
    exec(_CODE[source], scope)
    function = scope[kernel.fn.__name__]
    assert isinstance(function, FunctionType)
    scope[kernel.fn.__name__] = kernel  # a recursive call goes through the kernel again
    return function


@contextmanager
def _interpreting() -> Iterator[None]:
    """Patch the language and the call of a `@triton.jit` function; restore every attribute exactly."""
    interpreter = triton_module("triton.runtime.interpreter")
    language = triton_module("triton.language")
    jit_function = triton_module("triton.runtime.jit").JITFunction
    core = language.core
    patched = [language, core, language.math, core.tensor, core.dtype, core.tensor_descriptor_base, jit_function]
    before = [dict(vars(owner)) for owner in patched]

    # The interpreter patches the language's modules that it finds among the globals of a function: give it all.
    everything = SimpleNamespace(__globals__={"language": language, "core": core})
    functions: dict[int, Callable[..., Any]] = {}

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if id(self) not in functions:
            functions[id(self)] = _interpretable(self)
        kwargs.pop("_semantic", None)
        return functions[id(self)](*args, **kwargs)

    def bind(self: Any, instance: Any, _owner: type | None = None) -> Any:  # `x.sum(0)` is tl.sum as a class attribute
        return self if instance is None else partial(self, instance)

    try:
        interpreter._patch_lang(everything)
        jit_function.__call__ = call  # helpers, and the parts of the language that are written in it (tl.sum, tl.zeros)
        jit_function.__get__ = bind
        yield
    finally:
        for owner, attributes in zip(patched, before, strict=True):
            for name in vars(owner).keys() - attributes.keys():
                delattr(owner, name)
            for name, value in attributes.items():
                if vars(owner).get(name) is not value:
                    setattr(owner, name, value)


@contextmanager
def _building(builder: Any, launch: LaunchAccess) -> Iterator[None]:
    """The interpreter's operations: numbers as on a GPU, every access checked and, where wanted, recorded."""
    attributes = vars(builder)
    before = dict(attributes)
    quick = replace(builder.options, sanitize_overflow=False)  # it takes a third of the time, and nothing reads it
    attributes |= {"options": quick, **operations(builder), **_watched(builder, launch)}  # they hide those of its class
    try:
        yield
    finally:
        attributes.clear()
        attributes |= before


def _watched(builder: Any, launch: LaunchAccess) -> dict[str, Callable[..., Any]]:
    """The memory operations, each looked at before it happens."""
    extents = sorted(launch.extents, key=lambda extent: extent.first)
    first, end = (np.array([getattr(e, edge) for e in extents], np.uint64) for edge in ("first", "end"))
    is_recording = _STATE.log is not None
    kind = type(builder)

    def see(access: Access, pointers: Any, mask: Any) -> None:
        selected = True if mask is None else np.asarray(mask.data, bool)
        addresses = np.unique(pointers.data[np.broadcast_to(selected, pointers.data.shape)])
        width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        inside = (addresses[:, None] >= first) & (addresses[:, None] + np.uint64(width) <= end)
        program = launch.programs[-1]
        if not inside.any(axis=1).all():
            address = int(addresses[~inside.any(axis=1)][0])
            raise OutOfBounds(_stray(launch, program.program, access, address))
        if is_recording and addresses.size:
            program.add(access, spans_of(addresses, width))

    def masked_load(pointers: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        see("load", pointers, mask)
        return kind.create_masked_load(builder, pointers, mask, *rest, **options)

    def masked_store(pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        see("store", pointers, mask)
        return kind.create_masked_store(builder, pointers, value, mask, *rest, **options)

    def atomic_rmw(operation: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        see("atomic", pointers, mask)
        return kind.create_atomic_rmw(builder, operation, pointers, value, mask, *rest)

    def atomic_cas(pointers: Any, *rest: Any) -> Any:
        see("atomic", pointers, None)
        return kind.create_atomic_cas(builder, pointers, *rest)

    return {
        "create_masked_load": masked_load,
        "create_masked_store": masked_store,
        "create_atomic_rmw": atomic_rmw,
        "create_atomic_cas": atomic_cas,
    }


def _stray(launch: LaunchAccess, program: Program, access: Access, address: int) -> str:
    """The message of an access outside all tensors: what was nearest, and how far."""
    text = f"{launch.kernel}, program {program}: {access} outside every tensor argument"
    if not launch.extents:
        return text
    near = min(launch.extents, key=lambda extent: max(extent.first - address, address - extent.end))
    size = near.end - near.first
    return f"{text}; the nearest is {near.argument}, {size} bytes, at its byte {address - near.first}"
