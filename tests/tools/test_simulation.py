"""Laws of the workload simulator: everybody is served or named, nothing is lost, and nothing depends on chance."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedkv.conformance.differential.violation import Violation
from pagedkv.reference import BlockManager
from pagedkv.simulation import (
    POOL, Arrival, Checked, Engine, Reservation, ServiceModel, Span, Unchecked, WorkloadMeasures, bundled,
    compare_reservations, read_arrivals, run,
)  # fmt: skip
from pagedkv.simulation.measures import peak_served, summarise_queue
from pagedkv.spec import Config, Misuse, Ok, Outcome, Row, Token
from pagedkv.spec.subject import Capabilities
from pagedkv.spec.trace import TraceError
import itertools

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"

ARRIVALS = st.lists(st.tuples(st.floats(0, 3), st.integers(1, 40), st.integers(0, 12)), min_size=1, max_size=12).map(
    lambda rows: [Arrival(f"r{i}", t, p, o) for i, (t, p, o) in enumerate(sorted(rows))]
)
CONFIGS = st.builds(Config, num_blocks=st.integers(1, 24), block_size=st.integers(1, 5), prefix_cache=st.booleans())


def unchecked(config: Config) -> Unchecked:
    return Unchecked(BlockManager(config), config)


@given(arrivals=ARRIVALS, config=CONFIGS)
def test_every_request_is_finished_or_named_unservable(arrivals: list[Arrival], config: Config) -> None:
    measures, spans = run(arrivals, unchecked(config), config)
    capacity = config.num_blocks * config.block_size
    assert set(measures.unservable) == {a.name for a in arrivals if a.final_length > capacity}
    assert measures.finished == len(spans) == len(arrivals) - len(measures.unservable)
    assert sorted(span.length for span in spans) == sorted(
        a.final_length for a in arrivals if a.final_length <= capacity
    )


@given(arrivals=ARRIVALS, config=CONFIGS)
def test_all_blocks_are_available_in_the_end(arrivals: list[Arrival], config: Config) -> None:
    checker = unchecked(config)
    run(arrivals, checker, config)
    assert checker.available_blocks() == config.num_blocks


@given(arrivals=ARRIVALS, config=CONFIGS)
def test_room_adds_up_in_every_step(arrivals: list[Arrival], config: Config) -> None:
    engine = Engine(arrivals, unchecked(config), config)
    measures = engine.run()
    for sample in engine.samples:
        empty = sample.used_blocks * config.block_size - sample.tokens
        assert 0 <= empty <= sample.active * (config.block_size - 1)  # only last blocks are partly empty
        assert sample.used_blocks <= config.num_blocks
    for share in (measures.mean_block_utilisation, measures.mean_slot_utilisation, measures.mean_waste):
        assert 0 <= share <= 1
    assert measures.mean_slot_utilisation <= measures.mean_block_utilisation + 1e-12
    assert all(0 <= p.slot_utilisation <= p.block_utilisation <= 1 for p in measures.series)


@given(arrivals=ARRIVALS, config=CONFIGS)
def test_nobody_is_served_before_coming_and_the_first_in_line_goes_first(
    arrivals: list[Arrival], config: Config
) -> None:
    engine = Engine(arrivals, unchecked(config), config)
    engine.run()
    assert all(span.arrival_s <= span.admitted_s < span.finished_s for span in engine.spans)
    in_order = sorted(engine.spans, key=lambda span: span.arrival_s)
    for earlier, later in itertools.pairwise(in_order):
        if earlier.arrival_s < later.arrival_s:
            assert earlier.admitted_s <= later.admitted_s


@given(arrivals=ARRIVALS, config=CONFIGS)
def test_the_same_run_measures_the_same(arrivals: list[Arrival], config: Config) -> None:
    assert run(arrivals, unchecked(config), config) == run(arrivals, unchecked(config), config)


def test_the_engine_passes_the_specification() -> None:
    config = Config(num_blocks=40, block_size=4)
    checker = Checked(BlockManager, config)
    arrivals = [Arrival(f"r{i}", i / 50, 20 + i, 30) for i in range(30)] + [Arrival("large", 0.7, 150, 30)]
    measures, _ = run(arrivals, checker, config)
    assert measures.preemptions > 0, "the pool is chosen so small that growth must preempt"
    assert (measures.finished, measures.unservable) == (30, ("large",))
    assert checker.full_checks >= 1
    assert checker.operations > 2 * measures.appended_tokens > 0


class Plain(BlockManager):
    """Declares no batch, so that none may be asked of it."""

    @property
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(super().capabilities, batch=False)

    def batch(self, rows: Sequence[Row]) -> Sequence[Outcome]:
        raise AssertionError("not declared")


def test_a_manager_without_batches_is_asked_row_by_row() -> None:
    config = Config(num_blocks=16, block_size=4)
    arrivals = [Arrival(f"r{i}", 0.0, 9, 20) for i in range(4)]
    assert run(arrivals, Checked(Plain, config), config) == run(arrivals, Checked(BlockManager, config), config)


class Forgetful(BlockManager):
    """Loses the last slot of an append now and then."""

    def append(self, request: object, tokens: Sequence[Token]) -> Outcome:
        outcome = super().append(request, tokens)
        if isinstance(outcome, Ok) and outcome.slots and outcome.slots[-1] % 5 == 4:
            return dataclasses.replace(outcome, slots=(outcome.slots[-1] - 1,))
        return outcome


def test_a_manager_that_breaks_a_law_is_caught() -> None:
    config = Config(num_blocks=64, block_size=4)
    with pytest.raises(Violation, match="slots"):
        run([Arrival("a", 0.0, 3, 20)], Checked(Forgetful, config), config)


def test_a_manager_that_refuses_without_reason_ends_the_run() -> None:
    config = Config(num_blocks=4, block_size=4)
    checker = unchecked(config)
    checker.subject.admit("squatter", [1] * 16)
    with pytest.raises(RuntimeError, match="refuses 'a'"):
        run([Arrival("a", 0.0, 4, 2)], checker, config)


def test_waste_is_less_than_a_block_a_conversation_and_reservation_takes_more() -> None:
    arrivals = [Arrival(f"r{i}", i / 10, 30, 20) for i in range(20)]
    config = Config(num_blocks=200, block_size=4)
    measures, spans = run(arrivals, unchecked(config), config)
    (reserved,) = compare_reservations(arrivals, spans, config, [200])
    assert reserved.fit_in_pool == 4 < measures.peak_active
    assert reserved.peak_active == 4
    assert reserved.reserved_at_peak_tokens == peak_served(spans) * 200 > measures.peak_blocks * 4
    assert reserved.queue_p99_s > measures.queue_p99_s
    assert reserved.mean_slot_utilisation < measures.mean_slot_utilisation


def test_a_reservation_cannot_serve_what_is_longer() -> None:
    arrivals = [Arrival("short", 0.0, 5, 5), Arrival("long", 0.0, 50, 5)]
    config = Config(num_blocks=16, block_size=4)
    checker = Reservation(config, 32, {a.name: a.final_length for a in arrivals})
    measures, _ = run(arrivals, checker, config)
    assert (measures.unservable, measures.finished) == (("long",), 1)


def test_queue_times_are_times_that_occurred() -> None:
    spans = [Span(0.0, float(wait), 9.0, 1) for wait in (1, 2, 3, 4)]
    assert summarise_queue(spans) == (2.0, 4.0)
    assert summarise_queue([]) == (0.0, 0.0)


def test_the_bundled_arrivals_are_the_published_ones() -> None:
    arrivals = bundled()
    assert len(arrivals) == 2_000
    assert sum(a.prompt_tokens for a in arrivals) == 2_209_565
    assert sum(a.output_tokens for a in arrivals) == 529_807
    assert arrivals == sorted(arrivals, key=lambda a: a.arrival_s)
    assert max(a.final_length for a in arrivals) <= POOL.num_blocks * POOL.block_size


def test_a_request_has_tokens_of_its_own() -> None:
    first, second = bundled(2)
    assert (len(first.prompt()), len(first.generated())) == (374, 43)
    assert first.prompt()[:16] != second.prompt()[:16]
    assert first.prompt() + first.generated() == first.prompt() + bundled(1)[0].generated()


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("", 1, "header"),
        ("time,in,out\n", 1, "header"),
        (HEADER, 2, "at least one request"),
        (HEADER + "2023-11-16 18:15:46.6805900,374\n", 2, "three fields"),
        (HEADER + "2023-11-16 18:15:46.6805900,374,44\nyesterday,1,1\n", 3, "a time like"),
        (HEADER + "2023-11-16 18:15:46.6805900,0,44\n", 2, "ContextTokens"),
        (HEADER + "2023-11-16 18:15:46.6805900,3,-1\n", 2, "GeneratedTokens"),
        (HEADER + "2023-11-16 18:15:46,3,1\n2023-11-16 18:15:45,3,1\n", 3, "not before"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, line: int, expected: str) -> None:
    path = tmp_path / "arrivals.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=expected) as error:
        read_arrivals(path)
    assert (error.value.file, error.value.line) == (str(path), line)


def test_misuse_is_named() -> None:
    with pytest.raises(Misuse, match="limit"):
        bundled(0)
    with pytest.raises(Misuse, match="base_s"):
        ServiceModel(base_s=-1.0)
    with pytest.raises(Misuse, match="max_prompt_tokens"):
        ServiceModel(max_prompt_tokens=0)


def test_measures_are_plain_values() -> None:
    config = Config(num_blocks=16, block_size=4)
    measures, _ = run([Arrival("a", 0.0, 5, 3)], unchecked(config), config)
    assert isinstance(measures, WorkloadMeasures)
    assert measures.as_json()["appended_tokens"] == 2
