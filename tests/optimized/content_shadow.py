"""What the slots of the pool hold, kept beside a manager that knows nothing of it.

The KV of a position is what it was computed from: cache group, namespace, and all tokens up to it. The shadow writes
it where `commit` says that it was written, moves it where a copy, a swap or a permutation says so, and looks after
every operation at what each request would read through its tables. So isolation, copy-on-write and hits are one
equality. KV may also be *wrong* (a transfer that failed): then so is everything computed while looking at it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pagedkv.optimized.external import Invalidated
from pagedkv.spec import (
    HOLE, Admit, Batch, Block, Commit, Fork, Identity, Misuse, Ok, Permute, Preempt, Refused, Resume, State, Token,
    Truncate, permutation,
)  # fmt: skip
from pagedkv.spec.words import Namespace

from tests.optimized.feature_programs import (
    AdmitApart, AdmitExternal, Answer, Feature, Featured, Invalidate, entries, run, tables,
)  # fmt: skip
from tests.optimized.manager_programs import view


class Content(NamedTuple):
    """The KV of one position in one group."""

    group: int
    namespace: Namespace
    path: tuple[Token, ...]
    wrong: bool


class Shadow:
    """A manager and the contents of its pool."""

    def __init__(self, manager: Featured) -> None:
        self.manager, self.block_size = manager, manager.config.block_size
        self.groups = range(len(manager.groups))
        self.holes: dict[str, list[int]] = {}
        """Of each request how many holes each of its tables must have."""
        self.pending: dict[str, set[int]] = {}
        """Positions whose KV will turn out wrong when it is committed: a transfer that goes wrong."""
        self._pool: dict[Block, dict[int, Content]] = {}
        self._swap: dict[Block, dict[int, Content]] = {}

    def do(self, op: Feature) -> Answer:
        """Carry it out, follow it, and look at everything."""
        manager = self.manager
        before, was = view(manager), {r: tables(manager, r) for r in view(manager).requests}
        answer = run(manager, op)
        if not isinstance(answer, Misuse):
            rows = op.rows if isinstance(op, Batch) else (op,)
            copies = [c for one in answer if isinstance(one, Ok) for c in one.copies]
            moved = {c.destination: dict(self._pool.get(c.source, {})) for c in copies}  # all together
            self._pool.update(moved)
            for row, one in zip(rows, answer, strict=True):
                self._follow(row, one, before, was)
        self.look()
        return answer

    def _follow(
        self,
        op: Feature,
        answer: Ok | Refused | Invalidated,
        before: State,
        was: dict[object, tuple[tuple[Block, ...], ...]],
    ) -> None:
        match op, answer:
            case ((Admit(request) | AdmitApart(request) | AdmitExternal(request)), Ok(cached_tokens=cached)):
                self.holes[str(request)] = [self._dead(g, cached) for g in self.groups]
                self.pending.pop(str(request), None)
            case Fork(parent, child), Ok():
                self.holes[str(child)] = list(self.holes[str(parent)])
                self.pending.pop(str(child), None)
            case Commit(request, computed), Ok():
                self._write(str(request), before, was[request], computed)
                self.holes[str(request)] = [
                    max(h, self._dead(g, computed)) for g, h in enumerate(self.holes[str(request)])
                ]
            case Preempt(_, "swap"), Ok(swapped=swapped):
                self._swap.update({c.destination: dict(self._pool.get(c.source, {})) for c in swapped})
            case Resume(request), Ok(cached_tokens=cached, swapped=swapped):
                self._pool.update({c.destination: self._swap.pop(c.source) for c in swapped})
                if before.requests[request].residency == "recompute":
                    self.holes[str(request)] = [self._dead(g, cached) for g in self.groups]
            case Permute(seed), Ok():
                names = permutation(seed, self.manager.config.num_blocks)
                self._pool = {names[block]: held for block, held in self._pool.items()}
            case ((Truncate(request) | Invalidate(request)), _):
                lost = op.length if isinstance(op, Truncate) else op.from_position
                dead = [self._dead(g, min(before.requests[request].computed, lost), 0) for g in self.groups]
                released = any(dead[g] < self.holes[str(request)][g] for g in self.groups)
                assert isinstance(answer, Refused) == released

    def _dead(self, group: int, computed: int, rollback: int | None = None) -> int:
        """Blocks that a window must have released once `computed` positions are written."""
        window = self.manager.groups[group].sliding_window
        if window is None:
            return 0
        rollback = self.manager.config.max_rollback if rollback is None else rollback
        firsts = range(self._sink_blocks(group) * self.block_size, computed, self.block_size)
        return sum(first + self.block_size <= computed + 1 - window - rollback for first in firsts)

    def _write(self, request: str, before: State, was: tuple[tuple[Block, ...], ...], computed: int) -> None:
        """The positions up to `computed` are written, in the tables as they were."""
        known = before.requests[request]
        for position in range(known.computed, computed):
            wrong = position in self.pending.get(request, ()) or self.looks_at_wrong(
                known.namespace, known.tokens, was, position
            )
            for group in self.groups:
                block = was[group][position // self.block_size]
                assert block != HOLE
                content = Content(group, known.namespace, known.tokens[: position + 1], wrong)
                self._pool.setdefault(block, {})[position % self.block_size] = content
        self.pending[request] = {p for p in self.pending.get(request, ()) if p >= computed}

    def looks_at_wrong(
        self, namespace: Namespace, tokens: tuple[Token, ...], was: tuple[tuple[Block, ...], ...], position: int
    ) -> bool:
        """A query here sees, in any group, a position that is wrong."""
        for group, seen in enumerate(self.manager.groups):
            for p in range(position):
                near = seen.sliding_window is None or position - p < seen.sliding_window
                block = was[group][p // self.block_size]
                if (near or p < seen.sink_tokens) and block != HOLE and self._pool[block][p % self.block_size].wrong:
                    return True
        return False

    def read(self, request: object) -> Iterable[tuple[int, int, Content]]:
        """(group, position, what is there) for each position that this request keeps, in its blocks or saved."""
        rows, known, count = self.manager._state.rows, view(self.manager).requests[request], self.block_size
        saved = rows.known(rows.row_of[request]).saved
        pool, queue = (self._pool, None) if saved is None else (self._swap, iter(saved.tolist()))
        for group in self.groups:
            holes, sinks = self.holes[str(request)][group], self._sink_blocks(group)
            for logical in range(-(-known.reserved // count)):
                if sinks <= logical < sinks + holes:
                    continue
                block = tables(self.manager, request)[group][logical] if queue is None else next(queue)
                for position in range(logical * count, min((logical + 1) * count, known.computed)):
                    yield group, position, pool[block][position % count]

    def holds(self, block: Block) -> dict[int, Content]:
        return self._pool[block]

    def look(self) -> None:
        """Every request reads its own KV, holes are where they must be, and no block is in two groups."""
        groups_of: dict[Block, int] = {}
        for request, known in view(self.manager).requests.items():
            if known.residency == "recompute":
                continue
            for group, table in enumerate(tables(self.manager, request) if known.residency == "resident" else ()):
                sinks = self._sink_blocks(group)
                holes = [i for i, block in enumerate(table) if block == HOLE]
                assert holes == list(range(sinks, sinks + self.holes[str(request)][group])), (request, group)
                for block in table:
                    assert block == HOLE or groups_of.setdefault(block, group) == group
            for group, position, content in self.read(request):
                assert content[:3] == (group, known.namespace, known.tokens[: position + 1]), (request, group, position)
        for (group, identity), block in entries(self.manager).items():
            paths = [identity.tokens[: len(identity.tokens) - self.block_size + i + 1] for i in range(self.block_size)]
            assert [self.holds(block)[i][:3] for i in range(self.block_size)] == [
                (group, identity.namespace, p) for p in paths
            ]

    def _sink_blocks(self, group: int) -> int:
        seen = self.manager.groups[group]
        return 0 if seen.sliding_window is None else -(-seen.sink_tokens // self.block_size)

    def wrong_entries(self) -> list[tuple[int, Identity]]:
        """What can be found and is wrong."""
        return [e for e, block in entries(self.manager).items() if any(c.wrong for c in self.holds(block).values())]

    def wrong_readers(self) -> dict[str, int]:
        """Requests that keep wrong KV, and the first such position."""
        found: dict[str, int] = {}
        for request, known in view(self.manager).requests.items():
            if known.residency != "recompute":
                for _, position, content in self.read(request):
                    if content.wrong:
                        found[str(request)] = min(position, found.get(str(request), position))
        return found
