"""The operations of a soak, one method a kind."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from pagedkv.optimized import BlockManager
from pagedkv.spec import Admit, Append, Misuse, Ok, Refused, Reserve
from pagedkv.spec.words import PreemptMode

from tests.optimized.soak_pool import LawBroken, SoakedPool, must

MOST_REQUESTS: Final = 10
MOST_BLOCKS_LONG: Final = 24
"""Behind a window a text could go on for ever."""
WEIGHTS: Final = {
    "admit": 8, "append": 8, "commit": 14, "reserve": 3, "fork": 4, "truncate": 4, "free": 6, "preempt": 3, "resume": 5,
    "append_batch": 10, "reserve_batch": 2, "commit_batch": 8, "free_batch": 1, "lookup": 1, "pin": 2, "unpin": 2,
    "evict": 1, "reset_prefix_index": 1, "begin_step": 3, "end_step": 5, "permute": 1, "admit_external": 2,
    "invalidate": 1, "take_events": 1, "misuse": 1,
}  # fmt: skip


class Life(SoakedPool):
    """One pool from its beginning to its end."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.counts: Counter[str] = Counter()
        """By kind and outcome."""
        drawn = {name: weight * self.rng.choice((0, 1, 1, 2)) for name, weight in WEIGHTS.items()}
        weights = {**drawn, **{name: WEIGHTS[name] for name in ("admit", "append", "commit", "free", "misuse")}}
        for name in ("begin_step", "end_step"):
            weights[name] *= self.manager.config.overlapped_steps
        self.kinds = [(kind, getattr(self, f"_{kind}")) for kind in weights]
        self.weights = list(weights.values())

    def run(self, operations: int, check_every: int) -> None:
        """Try so many operations, then drain. One of a kind of which there is nothing to do is not counted."""
        chosen = self.rng.choices(self.kinds, self.weights, k=operations)
        for number, (kind, operate) in enumerate(chosen, start=1):
            done = operate()
            if done is not None:
                self.counts[f"{kind} {'ok' if done else 'refused'}"] += 1
            if number % check_every == 0:
                self.manager.check()
        self.drain()

    # Each returns whether it was carried out: False if it was refused, None if there was nothing of that kind to do.

    def _admit(self) -> bool | None:
        if len(self.known) >= MOST_REQUESTS:
            return self._free()
        (text, namespace), request = self.prompt(), self.new_id()
        reserve = self.rng.choice((None, None, self.rng.randint(0, len(text))))
        admit, flags = self.manager.admit, {"read_cache": True, "write_cache": True}
        if self.rng.random() < 0.1:
            flags = {name: self.rng.random() < 0.5 for name in flags}
            done = isinstance(admit(request, text, namespace, reserve, **flags), Ok)
        else:
            operation = Admit(request, tuple(text), namespace, reserve)
            done = self.foretold(operation, lambda: admit(request, text, namespace, reserve))
        if done:
            self.known.append(request)
        return done

    def _admit_external(self) -> bool | None:
        if len(self.known) >= MOST_REQUESTS:
            return None
        (text, namespace), request = self.prompt(), self.new_id()
        done = isinstance(self.manager.admit_external(request, text, self.rng.randint(0, len(text)), namespace), Ok)
        if done:
            self.known.append(request)
        return done

    def _append(self) -> bool | None:
        if (found := self.pick()) is None:
            return None
        request, lengths = found
        if lengths.length > MOST_BLOCKS_LONG * self.block_size:
            return self._free()
        tokens = self.tokens(self.rng.choice((1, 2, 2 * self.block_size)))
        return self.foretold(Append(request, tuple(tokens)), lambda: self.manager.append(request, tokens))

    def _reserve(self) -> bool | None:
        if (found := self.pick()) is None:
            return None
        request, lengths = found
        length = self.rng.randint(1, lengths.length + 2 * self.block_size)
        return self.foretold(Reserve(request, length), lambda: self.manager.reserve(request, length))

    def _commit(self) -> bool | None:
        found = self.pick()
        return None if found is None else isinstance(self.manager.commit(found[0], self.computed(found[1])), Ok)

    def _fork(self) -> bool | None:
        found = self.pick()
        if found is None or found[1].computed < found[1].length or len(self.known) >= MOST_REQUESTS:
            return None
        done = isinstance(self.manager.fork(found[0], child := self.new_id()), Ok)
        if done:
            self.known.append(child)
        return done

    def _truncate(self) -> bool | None:
        if (found := self.pick()) is None:
            return None
        request, lengths = found
        length = self.rng.randint(max(1, lengths.length - 2 * self.block_size), lengths.length)
        return isinstance(self.manager.truncate(request, length), Ok)

    def _free(self) -> bool | None:
        if not self.known:
            return None
        self.manager.free(self.known.pop(self.rng.randrange(len(self.known))))
        return True

    def _preempt(self) -> bool | None:
        found = self.pick()
        mode: PreemptMode = "swap" if self.rng.random() < 0.6 else "recompute"
        return None if found is None else isinstance(self.manager.preempt(found[0], mode), Ok)

    def _resume(self) -> bool | None:
        found = self.pick(resident=False)
        return None if found is None else isinstance(self.manager.resume(found[0]), Ok)

    def _append_batch(self) -> bool | None:
        rows = [row for row in self.residents() if row[1].length < MOST_BLOCKS_LONG * self.block_size]
        if not rows:
            return None
        names, counts = [request for request, _ in rows], [self.rng.choice((1, 1, 1, 3)) for _ in rows]
        plan = self.manager.append_batch(names, self.rng.choices((0, 1), (5, 1), k=sum(counts)), counts)
        return len(plan.refused) == 0

    def _reserve_batch(self) -> bool | None:
        rows = self.residents()
        lengths = [self.rng.randint(1, lengths.length + self.block_size) for _, lengths in rows]
        return len(self.manager.reserve_batch([r for r, _ in rows], lengths).refused) == 0 if rows else None

    def _commit_batch(self) -> bool | None:
        rows = dict(self.residents())
        self.manager.commit_batch(list(rows), [self.computed(lengths) for lengths in rows.values()])
        return True

    def _free_batch(self) -> bool | None:
        gone = [request for request in self.known if self.rng.random() < 0.3]
        self.known = [request for request in self.known if request not in gone]
        self.manager.free_batch(gone)
        return True

    def _invalidate(self) -> bool | None:
        found = self.pick()
        if found is None:
            return None
        outcome = self.manager.invalidate(found[0], self.rng.randint(0, found[1].length))
        return not isinstance(outcome, Refused)

    def _lookup(self) -> bool | None:
        text, namespace = self.prompt()
        cached = self.manager.lookup(text, namespace).cached_tokens
        must("a lookup finds whole blocks of the text", cached % self.block_size == 0 and cached <= len(text), cached)
        return True

    def _pin(self) -> bool | None:
        if len(self.pins) >= 3:
            return None
        self.pins.append(self.prompt())
        self.manager.pin(*self.pins[-1])
        return True

    def _unpin(self) -> bool | None:
        if not self.pins:
            return None
        self.manager.unpin(*self.pins.pop(self.rng.randrange(len(self.pins))))
        return True

    def _evict(self) -> bool | None:
        self.manager.evict(self.rng.randint(0, 3))
        return True

    def _reset_prefix_index(self) -> bool | None:
        refused = isinstance(self.manager.reset_prefix_index(), Refused)
        must("a reset is refused while pins exist, and only then", refused == bool(self.pins), self.pins)
        return not refused

    def _begin_step(self) -> bool | None:
        if len(self.steps) >= 3:
            return self._end_step()
        self.steps.append(self.new_id())
        self.manager.begin_step(self.steps[-1])
        return True

    def _end_step(self) -> bool | None:
        if not self.steps:
            return None
        self.manager.end_step(self.steps.pop(self.rng.randrange(len(self.steps))))
        return True

    def _permute(self) -> bool | None:
        if self.steps:
            return None
        count = self.manager.config.num_blocks
        self.manager.permute(self.rng.sample(range(count), count))
        return True

    def _take_events(self) -> bool | None:
        self.manager.take_events()
        return True

    def _misuse(self) -> bool | None:
        manager, request = self.manager, self.known[0] if self.known else "nobody"
        wrong = self.rng.choice(MISUSES)
        before = manager.available_blocks
        try:
            wrong(manager, request)
        except Misuse:
            must("misuse changes nothing", manager.available_blocks == before, wrong)
            return True
        raise LawBroken(f"misuse is an exception: number {MISUSES.index(wrong)}")


MISUSES: Final[Sequence[Callable[[BlockManager, Any], object]]] = (
    lambda manager, request: manager.append("nobody", [1]),
    lambda manager, request: manager.admit(0, []),
    lambda manager, request: manager.append(request, [-1]),
    lambda manager, request: manager.commit(request, -1),
    lambda manager, request: manager.free_batch([request, request]),
    lambda manager, request: manager.append_batch([request], [1, 2]),
    lambda manager, request: manager.truncate(request, 0),
    lambda manager, request: manager.evict(-1),
    lambda manager, request: manager.end_step("none"),
    lambda manager, request: manager.unpin([9]),
)
