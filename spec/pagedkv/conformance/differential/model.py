"""The specification as a subject: every legal allocator, by its choices.

`ModelSubject` answers with the specification itself, under any `Choices`. Held against the specification it must
never fail, whatever it chooses: that is how the kit is kept from rejecting legal allocators.
"""

import random
from collections.abc import Callable, Sequence

from pagedkv.conformance.differential.by_value import ByValue
from pagedkv.spec import CANONICAL, HOLE, Block, Choices, Config, Operation, Outcome, State, apply, available, permute
from pagedkv.spec.blocks import available_in_order, evictable
from pagedkv.spec.subject import Capabilities, Lengths, Snapshot
from pagedkv.spec.words import RequestId


class ModelSubject(ByValue):
    """A `BlockManagerSubject` with every capability. `reports_index=False` hides its index."""

    def __init__(self, config: Config, choices: Choices = CANONICAL, *, reports_index: bool = True) -> None:
        self.state = State(config)
        self.choices = choices
        self.capabilities = Capabilities(
            fork=True, truncate=True, reserve=True, prefix_cache=True, lookup=True, pins=True, evict=reports_index,
            reports_index=reports_index, publish=config.publish, dedup=config.dedup, preempt=True, swap=True,
            sliding_window=True, sink_tokens=True, overlapped_steps=True, permute=True, batch=True,
        )  # fmt: skip

    def run(self, operation: Operation) -> Sequence[Outcome]:
        """What the specification answers."""
        self.state, outcomes = apply(self.state, operation, self.choices)
        return outcomes

    def permute(self, new_block: Sequence[Block]) -> Outcome:
        self.state, outcome = permute(self.state, new_block)
        return outcome

    def observe(self, requests: Sequence[RequestId] | None = None) -> Snapshot:
        known = {k: r for k, r in self.state.requests.items() if requests is None or k in requests}
        whole = requests is None
        return Snapshot(
            tables={k: r.table for k, r in known.items() if r.residency == "resident"},
            lengths={k: Lengths(r.length, r.reserved, r.computed, r.residency == "resident") for k, r in known.items()},
            available_blocks=available(self.state),
            references=dict(self.state.references) if whole else None,
            index=dict(self.state.entries) if whole and self.capabilities.reports_index else None,
        )


def _any_block(rng: random.Random) -> Choices:
    """Takes, evicts and deduplicates as the dice say."""

    def block(state: State, request: RequestId, logical: int) -> Block:
        return rng.choice(list(available_in_order(state)))

    def victims(state: State, count: int) -> Sequence[Block]:
        return rng.sample(evictable(state), count)

    return Choices(block=block, victims=victims, remap=lambda *_: rng.random() < 0.5)


def _highest_first() -> Choices:
    return Choices(
        block=lambda state, request, logical: max(available_in_order(state)),
        victims=lambda state, count: sorted(evictable(state), reverse=True)[:count],
    )


def _round_robin() -> Choices:
    last = HOLE

    def block(state: State, request: RequestId, logical: int) -> Block:
        nonlocal last
        candidates = sorted(available_in_order(state))
        last = next((b for b in candidates if b > last), candidates[0])
        return last

    return Choices(block=block)


LEGAL_CHOICES: dict[str, Callable[[int], Choices]] = {
    "lowest first": lambda seed: CANONICAL,
    "highest first": lambda seed: _highest_first(),
    "round robin": lambda seed: _round_robin(),
    "at random": lambda seed: _any_block(random.Random(seed)),
}
"""Allocators that differ in every choice that is free, each made from a seed."""
