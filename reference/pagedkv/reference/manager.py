"""The block manager: every operation of the specification, plain and complete.

The operations live in three files, by what they are about: `residency` (admit, free, preempt, resume), `growth`
(reserve, append, commit, fork, truncate) and `prefixes` (the index). Here are those about the pool as a whole: steps
in flight, relabelling, batches, and looking inside.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from pagedkv.reference.arguments import as_tuple, integer, token_path
from pagedkv.reference.base import Request
from pagedkv.reference.growth import GrowthOperations
from pagedkv.reference.prefixes import PrefixOperations
from pagedkv.reference.residency import ResidencyOperations
from pagedkv.spec.operations import Append, Commit, Free, Reserve, Row
from pagedkv.spec.subject import Capabilities, Lengths, Snapshot
from pagedkv.spec.words import HOLE, Block, Misuse, Ok, Outcome, RequestId, StepId, check_id


class BlockManager(ResidencyOperations, GrowthOperations, PrefixOperations):
    """A mutable block manager in plain Python; the first to read, and an oracle for faster ones.

    >>> from pagedkv.spec.words import Config
    >>> manager = BlockManager(Config(num_blocks=8, block_size=4))
    >>> manager.admit("a", [1, 2, 3, 4, 5]).cached_tokens
    0
    >>> manager.append("a", [6]).slots
    (5,)
    >>> manager.observe().tables
    {'a': (0, 1)}
    """

    @property
    def capabilities(self) -> Capabilities:
        """Everything; how blocks are published and deduplicated is a matter of the configuration."""
        return Capabilities(
            fork=True, truncate=True, reserve=True, prefix_cache=self.config.prefix_cache, lookup=True, pins=True,
            evict=True, reports_index=True, publish=self.config.publish, dedup=self.config.dedup, preempt=True,
            swap=True, sliding_window=True, sink_tokens=True, overlapped_steps=True, permute=True, batch=True,
            policy="lru",
        )  # fmt: skip

    def begin_step(self, step: StepId) -> Outcome:
        """A forward starts; blocks released from now on are held until it has ended."""
        check_id("step", step)
        if not self.config.overlapped_steps:
            raise Misuse("step", step, "no steps without Config(overlapped_steps=True)")
        if step in self.pool.steps:
            raise Misuse("step", step, "a step that is not in flight")
        self.pool.begin_step(step)
        return Ok()

    def end_step(self, step: StepId) -> Outcome:
        """The forward has ended, and so have the holds on its account."""
        check_id("step", step)
        if step not in self.pool.steps:
            raise Misuse("step", step, "a step in flight")
        self.pool.end_step(step)
        return Ok()

    def permute(self, new_block: Sequence[Block]) -> Outcome:
        """Relabel: what block `b` held, block `new_block[b]` holds. Needs a bijection, and no step in flight."""
        last = self.config.num_blocks - 1
        given = as_tuple("new_block", new_block, f"each of 0..{last} once")
        labels = [integer(f"new_block[{block}]", label, 0, last) for block, label in enumerate(given)]
        if sorted(labels) != list(range(last + 1)):
            raise Misuse("new_block", new_block, f"each of 0..{last} once")
        if self.pool.steps:
            raise Misuse("new_block", new_block, f"no permutation while {len(self.pool.steps)} steps are in flight")
        self.pool.relabel(labels)
        for entry in self.requests.values():
            entry.table = [HOLE if block == HOLE else labels[block] for block in entry.table]
        for pins in self.pins.values():
            pins[:] = [[labels[block] for block in blocks] for blocks in pins]
        return Ok()

    def batch(self, rows: Sequence[Row]) -> Sequence[Outcome]:
        """The rows, all of one kind, one after another; a refused row leaves the others to go on.

        Misuse in any of them changes nothing at all, so all are checked first. The source of a copy stays as it was
        until the end: whoever copied it away left it another owner, and no row of the same kind releases it.
        """
        allowed = "one row or more, all of one kind: Append, Reserve, Commit or Free"
        rows = as_tuple("rows", rows, allowed)
        kinds = {type(row) for row in rows}
        if len(kinds) != 1 or not kinds <= set(_RUN):
            raise Misuse("rows", rows, allowed)
        earlier: dict[RequestId, int] = {}
        for row in rows:
            self._check(row, earlier)
        run = _RUN[kinds.pop()]
        return [run(self, row) for row in rows]

    def _check(self, row: Row, earlier: dict[RequestId, int]) -> None:
        """Raise `Misuse` if the row is one after the rows before it, which left in `earlier` what matters of them."""
        match row:
            case Append(request, tokens):
                self._resident(request)
                token_path("tokens", tokens, least=1)
            case Reserve(request, length):
                self._resident(request)
                integer("length", length, 1)
            case Commit(request, computed):
                entry = self._resident(request)
                least = earlier.get(request, entry.computed)
                earlier[request] = integer("computed", computed, least, min(entry.reserved, entry.length))
            case Free(request):
                self._known(request)
                if request in earlier:
                    raise Misuse("request", request, "a request that no row before it has freed")
                earlier[request] = 0

    def observe(self, requests: Sequence[RequestId] | None = None) -> Snapshot:
        """What can be seen. With `requests`: tables and lengths of these only (of those that exist)."""
        if requests is not None:
            chosen = {request: self.requests[request] for request in requests if request in self.requests}
            return Snapshot(*_shown(chosen.items()), available_blocks=self.pool.available)
        return Snapshot(
            *_shown(self.requests.items()),
            available_blocks=self.pool.available,
            references={block: count for block, count in enumerate(self.pool.references) if count},
            index={block: prefix.identity() for block, prefix in self.pool.index.prefix_of.items()},
        )

    def copy(self) -> Self:
        """A manager in the same state that shares nothing mutable with this one."""
        twin = copy.copy(self)
        twin.pool = self.pool.copy()
        twin.requests = {request: entry.copy() for request, entry in self.requests.items()}
        twin.free_swap = self.free_swap.copy()
        twin.pins = {path: [blocks.copy() for blocks in pins] for path, pins in self.pins.items()}
        return twin


def _shown(
    entries: Iterable[tuple[RequestId, Request]],
) -> tuple[dict[RequestId, tuple[Block, ...]], dict[RequestId, Lengths]]:
    """Tables of the resident ones, lengths of all."""
    tables: dict[RequestId, tuple[Block, ...]] = {}
    lengths: dict[RequestId, Lengths] = {}
    for request, entry in entries:
        resident = entry.residency == "resident"
        lengths[request] = Lengths(entry.length, entry.reserved, entry.computed, resident)
        if resident:
            tables[request] = tuple(entry.table)
    return tables, lengths


_RUN: Mapping[type, Callable[[BlockManager, Any], Outcome]] = MappingProxyType(
    {
        Append: lambda manager, row: manager.append(row.request, row.tokens),
        Reserve: lambda manager, row: manager.reserve(row.request, row.length),
        Commit: lambda manager, row: manager.commit(row.request, row.computed),
        Free: lambda manager, row: manager.free(row.request),
    }
)
