"""The launches of the device pool, as values: run on a GPU, interpreted by the tests, or compiled without one.

Each operation is a fixed list of launches, whatever the tensors hold; what they tell each other lies in one allocation
whose size follows from the number of rows. They are made for the architecture of the device, or for another one that
`pagedkv.optimized.audit.targets.TARGETS` names.
"""

from typing import Any, Final, Literal, TypeVar

import torch
from torch import Tensor

from pagedkv.optimized.attention.cutting import architecture_of
from pagedkv.optimized.attention.tuned import max_registers, power_of_two
from pagedkv.optimized.device.plan import PoolPlan
from pagedkv.optimized.device.state import MOST, NO_LIMIT, PoolShape, PoolState
from pagedkv.optimized.kernels.pool.bring import import_apply_kernel, import_check_kernel, import_decide_kernel
from pagedkv.optimized.kernels.pool.fork import fork_apply_kernel, fork_decide_kernel
from pagedkv.optimized.kernels.pool.grow import grow_apply_kernel, grow_decide_kernel
from pagedkv.optimized.kernels.pool.release import (
    release_decide_kernel, release_disown_kernel, release_drop_kernel, release_mark_kernel, release_push_kernel,
    release_scan_kernel,
)  # fmt: skip
from pagedkv.optimized.launch import Launch
from pagedkv.spec.words import ceil_div

CHUNKS: Final = 32, 1024
"""Rows that the one program of a decision looks at together, at the least and at the most."""
PIECES: Final = 32, 256
"""Table entries or slots that a program of a row looks at together."""

V = TypeVar("V", Tensor, Tensor | None)
What = Literal["free", "truncate", "window", "hand over"]
CODES: Final[dict[What, int]] = {"free": 0, "truncate": 1, "window": 2, "hand over": 0}
"""As `pagedkv.optimized.kernels.pool.release` numbers them."""


def grow_launches(
    shape: PoolShape, state: PoolState, rows: Tensor | None, counts: Tensor | None, where: Tensor | None,
    entering: bool, total: int | None, architecture: str | None = None,
) -> tuple[list[Launch], PoolPlan]:  # fmt: skip
    """admit or append; see `loops.growth`."""
    rows, counts, where = dense(rows), dense(counts), dense(where)
    asked, device = shape.num_rows if rows is None else len(rows), state.numbers.device
    limit = NO_LIMIT if total is None else total
    outcome, before, seq_lens, taken, written = _vectors(5, asked, torch.int32, device)
    copies = torch.empty(asked, 2, dtype=torch.int32, device=device)
    top, first_slot = _vectors(2, asked + 1, torch.int64, device)
    slots = torch.empty(total or 0, dtype=torch.int64, device=device)
    chunk, piece = _chunk(asked), _within(PIECES, 1 if counts is None else shape.max_blocks)
    constants = {"ENTERING": entering, "BLOCK_SIZE": shape.block_size}
    decide = Launch(
        "grow_decide", f"rows={chunk}", grow_decide_kernel, (1,),
        (
            rows, counts, where, state.numbers, state.tables, state.references, state.counters, state.claims,
            state.writers, state.last_writer, outcome, before, taken, written, top, first_slot, asked, limit,
            shape.num_rows, shape.num_blocks, shape.max_blocks,
        ),
        {**constants, **_deciding(chunk, state, architecture)},
    )  # fmt: skip
    apply = Launch(
        "grow_apply", f"entries={piece}", grow_apply_kernel, (asked + 1,),
        (
            rows, counts, state.numbers, state.tables, state.references, state.free_list, outcome, taken, written,
            top, first_slot, before, seq_lens, copies, slots, asked, total or 0, shape.num_rows, shape.max_blocks,
        ),
        {**constants, **_by_row(piece)},
    )  # fmt: skip
    return [decide, apply], PoolPlan(outcome, seq_lens, slots, copies)


def fork_launches(
    shape: PoolShape, state: PoolState, parents: Tensor, children: Tensor, where: Tensor | None,
    architecture: str | None = None,
) -> tuple[list[Launch], Tensor]:  # fmt: skip
    """fork; see `loops.sharing`."""
    parents, children, where = dense(parents), dense(children), dense(where)
    asked = len(children)
    outcome = torch.empty(asked, dtype=torch.int32, device=children.device)
    chunk, piece = _chunk(asked), _within(PIECES, shape.max_blocks)
    decide = Launch(
        "fork_decide", f"rows={chunk}", fork_decide_kernel, (1,),
        (parents, children, where, state.numbers, state.counters, state.claims, outcome, asked, shape.num_rows),
        _deciding(chunk, state, architecture),
    )  # fmt: skip
    apply = Launch(
        "fork_apply", f"entries={piece}", fork_apply_kernel, (asked, ceil_div(shape.max_blocks, piece)),
        (
            parents, children, state.numbers, state.tables, state.references, outcome, shape.max_blocks,
            shape.num_rows, shape.num_blocks,
        ),
        {"BLOCK_SIZE": shape.block_size, **_by_row(piece)},
    )  # fmt: skip
    return [decide, apply], outcome


def release_launches(
    shape: PoolShape, state: PoolState, what: What, rows: Tensor | None, where: Tensor | None,
    lengths: Tensor | None = None, computed: Tensor | None = None, architecture: str | None = None,
) -> tuple[list[Launch], Tensor]:  # fmt: skip
    """free, truncate, release_window or hand_over; see `loops.giving_back`."""
    rows, where, lengths, computed = dense(rows), dense(where), dense(lengths), dense(computed)
    asked, device = shape.num_rows if rows is None else len(rows), state.numbers.device
    outcome, first, end, freed = _vectors(4, asked, torch.int32, device)
    place = torch.empty(asked, dtype=torch.int64, device=device)
    chunk, piece = _chunk(asked), _within(PIECES, 1 if what == "window" else shape.max_blocks)  # a few leave a window
    window = {"WINDOW_SIZE": shape.sliding_window or 0, "KEPT": shape.kept, "SINK_BLOCKS": shape.sink_blocks}

    def launch(name: str, kernel: Any, by_row: bool, args: tuple[Any, ...], **constants: Any) -> Launch:
        grid, lanes = (asked, piece) if by_row else (1, chunk)
        constants |= _by_row(piece) if by_row else _deciding(chunk, state, architecture)
        return Launch(f"release_{name}", f"{what} {lanes}", kernel, (grid,), args, constants)

    code = CODES[what]
    launches = [
        launch("decide", release_decide_kernel, False, (
            rows, lengths, computed, where, state.numbers, state.counters, state.claims, outcome, first, end, asked,
            shape.num_rows,
        ), WHAT=code, BLOCK_SIZE=shape.block_size, **window),
        launch("drop", release_drop_kernel, True, (
            rows, state.tables, state.references, state.last_release, first, end, shape.max_blocks, shape.num_blocks,
        )),
        launch("mark", release_mark_kernel, True, (
            rows, state.tables, state.references, state.owned, state.last_release, first, end, freed, shape.max_blocks,
            shape.num_blocks,
        )),
        launch("scan", release_scan_kernel, False, (state.counters, freed, place, asked, shape.num_blocks)),
        launch("push", release_push_kernel, True, (
            rows, lengths, state.numbers, state.tables, state.free_list, state.last_release, outcome, first, end,
            place, shape.max_blocks, shape.num_rows, shape.num_blocks,
        ), WHAT=code, SINK_BLOCKS=shape.sink_blocks),
    ]  # fmt: skip
    if what == "hand over":
        entries = (rows, state.tables, state.references, state.owned, first, end, shape.max_blocks, shape.num_blocks)
        launches.insert(1, launch("disown", release_disown_kernel, True, entries))
    return launches, outcome


def import_launches(
    shape: PoolShape, state: PoolState, rows: Tensor | None, tables: Tensor, lengths: Tensor, num_holes: Tensor | None,
    where: Tensor | None, owning: bool, architecture: str | None = None,
) -> tuple[list[Launch], Tensor]:  # fmt: skip
    """import_; see `loops.importing`."""
    rows, lengths, num_holes, where = dense(rows), dense(lengths), dense(num_holes), dense(where)
    tables = tables if tables.stride(-1) == 1 else tables.contiguous()
    asked, width = tables.shape
    outcome = torch.empty(asked, dtype=torch.int32, device=state.numbers.device)
    bad = torch.empty(asked, dtype=torch.int32, device=state.numbers.device)
    width = min(width, shape.max_blocks)
    chunk, piece = _chunk(asked), _within(PIECES, width)
    of_tables = {
        "OWNING": owning, "SINK_BLOCKS": shape.sink_blocks, "BLOCK_SIZE": shape.block_size, **_by_row(piece),
    }  # fmt: skip
    check = Launch(
        "import_check", f"entries={piece}", import_check_kernel, (asked,),
        (
            tables, lengths, num_holes, state.references, state.owned, bad, tables.stride(0), width, MOST,
            shape.num_blocks,
        ),
        {**of_tables, "WINDOWED": shape.sliding_window is not None},
    )  # fmt: skip
    decide = Launch(
        "import_decide", f"rows={chunk}", import_decide_kernel, (1,),
        (
            rows, lengths, where, state.numbers, state.counters, state.claims, bad, outcome, asked, shape.num_rows,
            width, MOST,
        ),
        {"BLOCK_SIZE": shape.block_size, **_deciding(chunk, state, architecture)},
    )  # fmt: skip
    apply = Launch(
        "import_apply", f"entries={piece}", import_apply_kernel, (asked, max(1, ceil_div(width, piece))),
        (
            rows, tables, lengths, num_holes, state.numbers, state.tables, state.references, state.owned, state.lent,
            outcome, tables.stride(0), shape.num_rows, shape.num_blocks, shape.max_blocks,
        ),
        of_tables,
    )  # fmt: skip
    return [check, decide, apply], outcome


def dense(vector: V) -> V:
    """Kernels step through vectors by 1."""
    return vector if vector is None else vector.contiguous()


def _vectors(count: int, length: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """(length,) each, in one allocation; all begin at a multiple of 16 bytes, as kernels are compiled for."""
    return torch.empty(count, ceil_div(length, 4) * 4, dtype=dtype, device=device)[:, :length].unbind()


def _deciding(chunk: int, state: PoolState, architecture: str | None) -> dict[str, int]:
    """How a decision is compiled. It is one program: that more of them would fit is worth no spill."""
    warps, architecture = _warps(chunk), architecture or architecture_of(state.numbers.device)
    return {"CHUNK": chunk, "num_warps": warps, **max_registers(architecture, warps)}


def _by_row(piece: int) -> dict[str, int]:
    """How a program for each row is compiled."""
    return {"PIECE": piece, "num_warps": _warps(piece)}


def _chunk(rows: int) -> int:
    return _within(CHUNKS, rows)


def _within(bounds: tuple[int, int], number: int) -> int:
    return min(bounds[1], max(bounds[0], power_of_two(number)))


def _warps(lanes: int) -> int:
    """Warps of a program: a thread for each lane, or for up to four. Twice as many would have too few registers."""
    return max(1, min(8, lanes // 32))
