"""KV that comes from elsewhere: it arrives, or not, or turns out to be wrong after others have gone on from it."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from pagedkv.optimized.external import Invalidated
from pagedkv.optimized.groups import CacheGroup
from pagedkv.spec import (
    Append, Batch, Commit, Config, Fork, Free, Misuse, Ok, Preempt, Refused, Reserve, Resume, Truncate,
)  # fmt: skip

from tests.optimized.content_shadow import Shadow
from tests.optimized.feature_programs import (
    FULL, WINDOW, AdmitApart, AdmitExternal, Feature, Featured, Invalidate, drain, entries, operation, tables,
)  # fmt: skip
from tests.optimized.manager_programs import NAMES, view

SEEDS = st.integers(0, 2**32)


class Transfers:
    """A manager to which KV comes from elsewhere, one transfer of which brings wrong KV from some position on."""

    def __init__(self, shadow: Shadow, rng: random.Random) -> None:
        self.shadow, self.manager, self.rng = shadow, shadow.manager, rng
        self.source: tuple[str, int] | None = None
        """The request that got wrong KV, and the first position of it."""
        self.refused = False
        """A window has released what would have to be rolled back."""

    def step(self) -> None:
        op = operation(self.rng, self.manager, (AdmitExternal, AdmitExternal, AdmitApart))
        if self.source and self.rng.random() < 0.6:
            op = self.spread(*self.source)
        if self.source and (self.ends(op, self.source[0]) or self.rng.random() < 0.1):
            self.discover(*self.source)
        if self.refused:
            return
        answer = self.shadow.do(op)
        if isinstance(op, AdmitExternal) and not isinstance(answer, Misuse) and isinstance(answer[0], Ok):
            self.receive(op, answer[0])

    def spread(self, request: str, position: int) -> Feature:
        """Somebody has the wrong KV, and goes on with it."""
        known = view(self.manager).requests
        near = [
            str(name)
            for name, other in known.items()
            if other.residency == "resident" and other.tokens[: position + 1] == known[request].tokens[: position + 1]
        ]
        who = self.rng.choice(near or [request])
        length, last = known[who].length, min(known[who].length, known[who].reserved)
        unknown = [name for name in NAMES if name not in known]
        kind = self.rng.randrange(6)
        if known[who].computed < length or kind == 0:
            return Commit(who, last) if last > known[who].computed else Reserve(who, length)
        if kind <= 2 and unknown:
            return Fork(who, self.rng.choice(unknown))
        if kind == 3:
            return Truncate(who, self.rng.randint(max(1, length - 3), length))
        if kind == 4 and who != request:
            return Free(who)
        return Append(who, tuple(self.rng.choices((0, 1), (9, 1), k=self.rng.randint(1, 3))))

    def receive(self, op: AdmitExternal, answer: Ok) -> None:
        """The slots are those of what was not found here, in blocks that nobody else has. What comes may be wrong."""
        bs, cached = self.manager.config.block_size, answer.cached_tokens
        awaited, seen = range(cached, op.external), tables(self.manager, op.request)
        assert answer.slots == tuple(table[p // bs] * bs + p % bs for table in seen for p in awaited)
        references, taken = self.manager.snapshot().references, {slot // bs for slot in answer.slots}
        assert references is not None
        assert all(references[block] == 1 for block in taken)
        assert taken.isdisjoint(entries(self.manager).values())
        if awaited and not self.source and self.rng.random() < 0.7:
            self.source = (op.request, self.rng.choice(awaited))
            self.shadow.pending[op.request] = set(range(self.source[1], op.external))

    def ends(self, op: Feature, request: str) -> bool:
        """This operation may take away what is wrong with the request, while others have it."""
        rows = op.rows if isinstance(op, Batch) else (op,)
        kinds = Free | Preempt | Truncate
        return any(isinstance(row, kinds) and row.request == request for row in rows)

    def discover(self, request: str, position: int) -> None:
        """It is found to be wrong: invalidate it, and who is affected, and who is affected by that, …"""
        known = view(self.manager).requests[request]
        self.source, wrong = None, [(request, position)]
        self.shadow.pending.pop(request, None)
        while wrong and not self.refused:
            who, where = wrong.pop()
            if who not in view(self.manager).requests:
                continue  # has been freed for want of blocks to come back to
            if view(self.manager).requests[who].residency != "resident":
                (back,) = self.shadow.do(Resume(who))  # type: ignore[misc]  # it is no misuse
                if isinstance(back, Refused):
                    self.shadow.do(Free(who))
                    continue
            (answer,) = self.shadow.do(Invalidate(who, where))  # type: ignore[misc]  # it is no misuse
            self.refused = isinstance(answer, Refused)
            for affected in answer.affected if isinstance(answer, Invalidated) else ():
                other = view(self.manager).requests[affected.request]
                assert affected.from_position >= position
                assert (other.namespace, other.tokens[: position + 1]) == (
                    known.namespace,
                    known.tokens[: position + 1],
                )
                wrong.append((str(affected.request), affected.from_position))
        if not self.refused:
            assert self.shadow.wrong_entries() == []
            assert self.shadow.wrong_readers() == {}


@given(seed=SEEDS, groups=st.sampled_from([(FULL,), (FULL,), (FULL, FULL), (FULL, WINDOW), (CacheGroup(5),)]))
@settings(max_examples=100, deadline=None)
def test_nothing_wrong_is_left_once_all_who_are_affected_are_invalidated(
    seed: int, groups: tuple[CacheGroup, ...]
) -> None:
    rng = random.Random(seed)
    config = Config(
        rng.randint(6, 16) * len(groups),
        rng.randint(1, 4),
        swap_blocks=rng.choice((0, 8)),
        max_rollback=rng.choice((0, 4)),
    )
    transfers = Transfers(Shadow(Featured(config, groups=groups)), rng)
    for _ in range(40):
        transfers.step()
        transfers.manager.check()
        if transfers.refused:
            break
    drain(transfers.manager)
