"""A serving engine in the small: continuous batching over a paged cache, on a simulated clock.

One step is one forward of the model. In this order it

1. appends one token to every running conversation, in one batch; while rows are refused, the conversation admitted
   last is preempted (its blocks go, it computes them again later) and the refused rows are tried again;
2. admits from the queue, first come first served, whole prompts, while the manager has blocks and the step has room
   for prompt tokens; preempted conversations are at the head. Not in a step that had to preempt;
3. lets the clock go on by the service time, and commits what was computed, in one batch;
4. frees the conversations that are done, in one batch.

Every request comes to an end: the conversation admitted first is never preempted for another, so it finishes; one
that does not fit the whole pool is refused as unservable and named.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pagedkv.simulation.arrivals import Arrival
from pagedkv.simulation.checkers import Checker
from pagedkv.simulation.measures import Sample, Span, WorkloadMeasures, series, summarise_queue, time_mean
from pagedkv.simulation.service import ServiceModel
from pagedkv.spec import (
    Admit, Append, Batch, Commit, Config, Free, Ok, Operation, Outcome, Preempt, Reason, Refused, Resume, Row, Token,
)  # fmt: skip

SERIES_POINTS = 60


@dataclass(slots=True)
class _Job:
    """One request on its way through the engine."""

    arrival: Arrival
    generated: tuple[Token, ...]
    grown: int = 0
    """How many of `generated` are appended."""
    admitted_s: float | None = None
    """First admission."""

    @property
    def name(self) -> str:
        return self.arrival.name

    @property
    def length(self) -> int:
        return self.arrival.prompt_tokens + self.grown


@dataclass
class Engine:
    """One run. `progress` is called now and then with (requests done, simulated seconds)."""

    arrivals: Sequence[Arrival]
    checker: Checker
    config: Config
    model: ServiceModel = field(default_factory=ServiceModel)
    progress: Callable[[int, float], None] | None = None

    def __post_init__(self) -> None:
        self.now_s = 0.0
        self.coming = deque(self.arrivals)
        self.waiting: deque[_Job] = deque()
        self.running: list[_Job] = []
        """In order of admission."""
        self.samples: list[Sample] = []
        self.spans: list[Span] = []
        self.unservable: list[str] = []
        self.full = False
        """The head of the queue was refused, and no block has come back since."""
        self.operations = self.appended = self.preemptions = self.recomputed = 0

    def run(self) -> WorkloadMeasures:
        """Serve every arrival."""
        while self.coming or self.waiting or self.running:
            if not self.waiting and not self.running:
                self.now_s = max(self.now_s, self.coming[0].arrival_s)
            while self.coming and self.coming[0].arrival_s <= self.now_s:
                arrival = self.coming.popleft()
                self.waiting.append(_Job(arrival, arrival.generated()))
            self._step()
        self.checker.finish()
        return self._measures()

    def _step(self) -> None:
        preempted = self._grow()
        prompt_tokens = 0 if preempted else self._admit()
        if not self.running:
            if self.waiting:
                raise RuntimeError(f"an empty pool refuses {self.waiting[0].name!r}, which fits it")
            return
        duration = self.model.step_s(len(self.running), prompt_tokens)
        used = self.config.num_blocks - self.checker.available_blocks()
        tokens = sum(job.length for job in self.running)
        self.samples.append(Sample(self.now_s, duration, len(self.running), len(self.waiting), used, tokens))
        self.now_s += duration
        self._batch([Commit(job.name, job.length) for job in self.running])
        self._leave()
        self.checker.step_ended()
        if self.progress and len(self.samples) % 500 == 0:
            self.progress(len(self.spans) + len(self.unservable), self.now_s)

    def _grow(self) -> int:
        """One token more for each running conversation; how many had to be preempted for it."""
        todo, preempted = list(self.running), 0
        while todo:
            rows = [Append(job.name, job.generated[job.grown : job.grown + 1]) for job in todo]
            refused = []
            for job, outcome in zip(todo, self._batch(rows), strict=True):
                if isinstance(outcome, Ok):
                    job.grown += 1
                    self.appended += 1
                elif outcome.reason is Reason.UNSERVABLE:
                    self._give_up(job)
                else:
                    refused.append(job)
            if refused:
                preempted += 1
                victim = self._preempt()
                refused = [job for job in refused if job is not victim]
            todo = refused
        return preempted

    def _preempt(self) -> _Job:
        victim = self.running.pop()
        self._apply(Preempt(victim.name, "recompute"))
        self.full = False
        self.preemptions += 1
        self.waiting.appendleft(victim)
        return victim

    def _admit(self) -> int:
        """Take from the queue what fits; the prompt tokens to compute in this step."""
        prompt_tokens = 0
        while self.waiting and not self.full and prompt_tokens < self.model.max_prompt_tokens:
            job = self.waiting[0]
            again = job.admitted_s is not None
            outcome = self._apply(Resume(job.name) if again else Admit(job.name, job.arrival.prompt()))
            if isinstance(outcome, Refused):
                self.full = outcome.reason is not Reason.UNSERVABLE
                if not self.full:
                    self.unservable.append(self.waiting.popleft().name)
                continue
            computes = job.length - outcome.cached_tokens
            prompt_tokens += computes
            if job.admitted_s is None:
                job.admitted_s = self.now_s
            else:
                self.recomputed += computes
            self.running.append(self.waiting.popleft())
        return prompt_tokens

    def _leave(self) -> None:
        done = [job for job in self.running if job.grown == len(job.generated)]
        if done:
            self._batch([Free(job.name) for job in done])
            self.full = False
            self.running = [job for job in self.running if job.grown < len(job.generated)]
        for job in done:
            assert job.admitted_s is not None
            self.spans.append(Span(job.arrival.arrival_s, job.admitted_s, self.now_s, job.length))

    def _give_up(self, job: _Job) -> None:
        """It has grown larger than the pool."""
        self._apply(Free(job.name))
        self.full = False
        self.running.remove(job)
        self.unservable.append(job.name)

    def _apply(self, operation: Operation) -> Outcome:
        self.operations += 1
        return self.checker.apply(operation)[0]

    def _batch(self, rows: Sequence[Row]) -> tuple[Outcome, ...]:
        self.operations += len(rows)
        return self.checker.apply(Batch(tuple(rows)))

    def _measures(self) -> WorkloadMeasures:
        _, durations, active, waiting, used, tokens = np.array(self.samples, np.float64).reshape(-1, 6).T
        size, blocks = self.config.block_size, self.config.num_blocks
        waste = used * size - tokens
        p50, p99 = summarise_queue(self.spans)
        return WorkloadMeasures(
            requests=len(self.arrivals),
            finished=len(self.spans),
            unservable=tuple(self.unservable),
            steps=len(self.samples),
            operations=self.operations,
            appended_tokens=self.appended,
            preemptions=self.preemptions,
            recomputed_tokens=self.recomputed,
            simulated_s=self.now_s,
            peak_active=int(active.max(initial=0)),
            peak_waiting=int(waiting.max(initial=0)),
            peak_blocks=int(used.max(initial=0)),
            mean_active=time_mean(active, durations),
            mean_block_utilisation=time_mean(used / blocks, durations),
            mean_slot_utilisation=time_mean(tokens / (blocks * size), durations),
            mean_waste=time_mean(waste, durations) / max(time_mean(used * size, durations), 1.0),
            peak_waste_slots=int(waste.max(initial=0)),
            queue_p50_s=p50,
            queue_p99_s=p99,
            series=series(self.samples, blocks, size, SERIES_POINTS),
        )


def run(
    arrivals: Sequence[Arrival],
    checker: Checker,
    config: Config,
    model: ServiceModel | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> tuple[WorkloadMeasures, tuple[Span, ...]]:
    """Serve `arrivals` on the manager behind `checker`, which has an empty pool of this `config`."""
    engine = Engine(arrivals, checker, config, model or ServiceModel(), progress)
    return engine.run(), tuple(engine.spans)
