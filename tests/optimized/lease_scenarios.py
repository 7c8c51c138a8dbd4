"""Leases in every way in which they can go; `atomic_scenarios` has the managers, and all other operations."""

from collections.abc import Callable
from typing import Final

from pagedkv.optimized.manager import BlockManager

from tests.optimized.atomic_scenarios import Operate, Prepare, at_the_edge, many_tokens, nothing, steps_over
from tests.optimized.feature_programs import tables

HUNDRED: Final = [1] * 100


def leased(manager: BlockManager) -> None:
    """Four blocks, of which two were idle, if blocks can be idle at all."""
    manager.lease(4)


def both(*prepare: Prepare) -> Prepare:
    """One after the other."""
    return lambda manager: [each(manager) for each in prepare]


def ready(manager: BlockManager) -> None:
    """The block that `i` will write into can no longer be found, and `b` has one of its own."""
    leased(manager)
    manager.reserve("i", 4)
    manager.reserve("b", 8)


def grown(manager: BlockManager, request: str, *new: int, keep: int | None = None) -> object:
    """A request comes back with `new` tokens; of its table it keeps all, or the first entries, and the rest is
    leased."""
    rows = manager._state.rows
    row, bs = rows.row_of[request], manager.config.block_size
    text = rows.tokens[row, : rows.length[row]].tolist() + list(new)
    kept = tables(manager, request)[0][:keep][: -(-len(text) // bs)]
    more = manager._state.pool.leased.tolist()[: -(-len(text) // bs) - len(kept)]
    return manager.adopt(request, text, [*kept, *more])


LEASES: Final[tuple[tuple[str, Prepare, Operate], ...]] = (
    ("lease free ones", nothing, lambda m: m.lease(2)),
    ("lease, evicting", nothing, lambda m: m.lease(4)),
    ("lease once more", leased, lambda m: m.lease(1)),
    ("lease refused", nothing, lambda m: m.lease(15)),
    ("lease unservable", nothing, lambda m: m.lease(1000)),
    ("lease misuse", nothing, lambda m: m.lease(0)),
    ("return a lease", leased, lambda m: m.return_lease(m._state.pool.leased)),
    ("return part of a lease", leased, lambda m: m.return_lease(m._state.pool.leased[1::2].tolist())),
    ("return with no step", both(leased, steps_over), lambda m: m.return_lease(m._state.pool.leased)),
    ("return misuse", leased, lambda m: m.return_lease([*m._state.pool.leased.tolist(), 0])),
    ("adopt what has not changed", leased, lambda m: grown(m, "c")),
    ("adopt a block", leased, lambda m: grown(m, "c", 1)),
    ("adopt blocks and paths", leased, lambda m: grown(m, "d", 1, 2, 3, 4, 5)),
    ("adopt a known path", both(leased, lambda m: m.truncate("c", 4)), lambda m: grown(m, "c", 9, 9)),
    ("adopt a branch", leased, lambda m: grown(m, "a", 8, 8, keep=3)),
    ("adopt replaced blocks", leased, lambda m: grown(m, "d", keep=0)),
    ("adopt what is ready", ready, lambda m: grown(m, "i", 3)),
    ("adopt a chunk", leased, lambda m: grown(m, "h", 1)),
    ("adopt less than was reserved", both(leased, lambda m: m.reserve("d", 9)), lambda m: grown(m, "d", 1)),
    ("adopt into a known block", leased, lambda m: grown(m, "i", 3)),
    ("adopt a shared block", leased, lambda m: grown(m, "b", 3)),
    ("adopt other tokens", leased, lambda m: m.adopt("c", HUNDRED, [0] * 50)),
    ("adopt preempted", leased, lambda m: m.adopt("f", HUNDRED, [0] * 50)),
    (
        "permute with leases",
        both(leased, steps_over),
        lambda m: m.permute(range(m.config.num_blocks)[::-1]),
    ),
)
"""Each from `lively`: a name, what happens before, and the operation."""


def wide() -> BlockManager:
    """As full as can be, and a lease of 40 blocks."""
    manager = at_the_edge()
    manager.lease(40)
    return manager


def long_text() -> BlockManager:
    """The next token is one too many for the rectangle."""
    manager = many_tokens()
    manager.lease(2)
    return manager


EDGES: Final[tuple[tuple[str, Callable[[], BlockManager], Operate], ...]] = (
    ("adopt wider tables and more paths", wide, lambda m: grown(m, "long", *range(30))),
    ("adopt more tokens", long_text, lambda m: grown(m, "a", *range(20))),
)
