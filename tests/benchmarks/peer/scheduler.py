"""A plain scheduler in virtual time: first come, first served, and the latest gives way when blocks run out.

A step decodes one token for each running request, in order of arrival; then whole prompts are prefilled while the
step has tokens left for it. Whoever finds no block makes the latest request lose its blocks (recompute). The blocks
decide everything, so two managers that answer alike see the same calls. Only the time inside the manager is counted.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

import numpy as np

from tests.benchmarks.peer.interface import Int32, Manager
from tests.benchmarks.peer.workloads import Arrival, generated


P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Pace:
    """What a step takes, in virtual time. A prompt longer than `prefill_tokens` makes its step longer in proportion."""

    step_s: float = 0.05
    prefill_tokens: int = 8192


@dataclass
class Served:
    """What happened. `seconds` of real time inside the manager, by call."""

    seconds: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    admissions: int = 0
    resumed: int = 0
    decoded: int = 0
    preemptions: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    recomputed_tokens: int = 0
    peak_blocks: int = 0
    peak_running: int = 0

    @property
    def operations(self) -> int:
        """Requests that entered, came back, lost their blocks or left, and tokens that were decoded."""
        return 2 * self.admissions + self.resumed + self.preemptions + self.decoded

    @property
    def operations_per_s(self) -> float:
        return self.operations / sum(self.seconds.values())

    @property
    def hit_rate(self) -> float:
        """Of the tokens of all prompts when they first entered."""
        return self.hit_tokens / self.prompt_tokens


@dataclass(eq=False)
class Active:
    """A request on its way. Between two steps the manager knows `generated` - 1 of its generated tokens."""

    arrival: Arrival
    ticket: Any
    handle: Any = None
    generated: int = 0
    owed: int | None = None
    """The token that found no slot before this request lost its blocks."""


class Replay:
    """One run of a trace on one manager."""

    def __init__(self, manager: Manager, num_blocks: int, pace: Pace) -> None:
        self.manager, self.num_blocks, self.pace = manager, num_blocks, pace
        self.served = Served()
        self.waiting: deque[Active] = deque()
        self.running: list[Active] = []
        self.tokens: Int32 = np.empty(0, np.int32)

    def run(self, arrivals: Sequence[Arrival]) -> Served:
        """All requests, to the end. At the end every block must be available again."""
        coming, now = deque(arrivals), 0.0
        while coming or self.waiting or self.running:
            if not self.waiting and not self.running:
                now = max(now, coming[0].arrival_s)
            while coming and coming[0].arrival_s <= now:
                arrival = coming.popleft()
                prompt = self.manager.native(arrival.prompt())
                self.waiting.append(Active(arrival, self._timed(self.manager.arrive, arrival.name, prompt)))
            had_room = not self.running or self._decode()
            prefilled = self._admit() if had_room else 0
            self._finish_step()
            now += self.pace.step_s * max(1.0, prefilled / self.pace.prefill_tokens)
        assert self.manager.available_blocks == self.num_blocks, "blocks were lost"
        return self.served

    def _decode(self) -> bool:
        """A slot for each running request. False: somebody had to give way."""
        self.served.decoded += len(self.running)
        batch = self._handles()
        refused = self._timed(self.manager.decode, batch, self.tokens)
        had_room = not refused
        while refused:
            victim = self.running.pop()
            last = len(self.running)
            if refused[-1] == last:
                refused.pop()
                victim.owed = int(self.tokens[last])
                self.served.decoded -= 1
            self._timed(self.manager.preempt, victim.handle)
            self.waiting.appendleft(victim)
            self.served.preemptions += 1
            again = [batch[i] for i in refused]
            if again:
                refused = [refused[i] for i in self._timed(self.manager.decode, again, self.tokens[refused])]
        return had_room

    def _admit(self) -> int:
        """Prefill whole prompts, the oldest first, until the step is full. The number of tokens to be computed."""
        prefilled = 0
        while self.waiting and prefilled < self.pace.prefill_tokens:
            active = self.waiting[0]
            came_back = active.handle is not None
            if came_back:
                entry = self._timed(self.manager.again, active.handle, active.owed)
            else:
                entry = self._timed(self.manager.enter, active.ticket)
            if entry is None:
                assert self.running, f"request {active.arrival.name} does not fit into {self.num_blocks} blocks"
                break
            self.running.append(self.waiting.popleft())
            active.handle, active.owed, active.ticket = entry.handle, None, None
            computed = active.arrival.prompt_tokens + active.generated - entry.cached_tokens
            prefilled += computed
            if came_back:
                self.served.resumed += 1
                self.served.recomputed_tokens += computed
            else:
                self.served.admissions += 1
                self.served.prompt_tokens += active.arrival.prompt_tokens
                self.served.hit_tokens += entry.cached_tokens
        return prefilled

    def _finish_step(self) -> None:
        """The forward pass ran: everything reserved is written, and each running request has one more token."""
        served, running = self.served, self.running
        lengths = np.array([a.arrival.prompt_tokens + a.generated for a in running], np.int32)
        self._timed(self.manager.commit, self._handles(), lengths)
        served.steps += 1
        served.peak_running = max(served.peak_running, len(running))
        served.peak_blocks = max(served.peak_blocks, self.num_blocks - self.manager.available_blocks)
        for active in running:
            active.generated += 1
        done = [a.handle for a in running if a.generated == a.arrival.output_tokens]
        if done:
            self._timed(self.manager.leave, done)
        self.running = [a for a in running if a.generated < a.arrival.output_tokens]
        self.tokens = generated([a.arrival.name for a in self.running], [a.generated for a in self.running])
        self._timed(self.manager.sampled, self._handles(), self.tokens)

    def _handles(self) -> list[Any]:
        return [active.handle for active in self.running]

    def _timed(self, operation: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        start = perf_counter()
        result = operation(*args, **kwargs)
        seconds, call = self.served.seconds, operation.__name__
        seconds[call] = seconds.get(call, 0.0) + perf_counter() - start
        return result
