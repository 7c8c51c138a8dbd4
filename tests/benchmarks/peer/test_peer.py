"""The parts of the comparison that need no vLLM: the traces, the scheduler on our manager, the page."""

import json

import numpy as np
import pytest

from tests.benchmarks.peer.curve import costs
from tests.benchmarks.peer.interface import BLOCK_SIZE, Entry, Int32
from tests.benchmarks.peer.our_manager import OurManager
from tests.benchmarks.peer.scheduler import Pace, Replay, Served
from tests.benchmarks.peer.table import DOCUMENTS, render
from tests.benchmarks.peer.timing import against, paired
from tests.benchmarks.peer.workloads import CHUNK, VOCABULARY, Arrival, azure, ceiling, generated, mooncake


def test_the_mooncake_trace_is_whole() -> None:
    arrivals = mooncake(20_000)
    assert len(arrivals) == 12_031
    assert sum(arrival.prompt_tokens for arrival in arrivals) == 144_793_823
    assert all(len(arrival.chunks) == -(-arrival.prompt_tokens // CHUNK) for arrival in arrivals)
    seen: set[int] = set()
    found = 0
    for arrival in arrivals:
        found += next((i for i, chunk in enumerate(arrival.chunks) if chunk not in seen), len(arrival.chunks))
        seen.update(arrival.chunks)
    assert found / sum(len(arrival.chunks) for arrival in arrivals) == pytest.approx(0.3664, abs=5e-5)


def test_prompts_share_what_the_trace_says() -> None:
    first, second = mooncake(2)
    shared = next(i for i, (one, two) in enumerate(zip(first.chunks, second.chunks, strict=False)) if one != two)
    length = min(first.prompt_tokens, second.prompt_tokens)
    same = first.prompt()[:length] == second.prompt()[:length]
    assert shared == 1
    assert same.argmin() == shared * CHUNK
    assert same[shared * CHUNK :].mean() < 10 / VOCABULARY * CHUNK


def test_nothing_is_shared_by_chance() -> None:
    prompts = [arrival.prompt()[:BLOCK_SIZE].tobytes() for arrival in azure(300)]
    assert len(set(prompts)) == 300
    assert ceiling(azure(300)) == 0
    tokens = generated(np.repeat(np.arange(300), 20).tolist(), list(range(20)) * 300)
    assert len({row.tobytes() for row in tokens.reshape(300, 20)}) == 300


def test_the_ceiling_leaves_a_token_to_compute() -> None:
    twice = [Arrival(name, float(name), 2 * CHUNK, 1, (7, 8)) for name in range(2)]
    assert ceiling(twice) == (2 * CHUNK - BLOCK_SIZE) / (4 * CHUNK)


def replay(arrivals: list[Arrival], num_blocks: int) -> Served:
    return Replay(OurManager(num_blocks), num_blocks, Pace()).run(arrivals)


def test_without_pressure_every_token_is_decoded_once() -> None:
    arrivals = azure(40)
    served = replay(arrivals, 10_000)
    assert served.decoded == sum(arrival.output_tokens - 1 for arrival in arrivals)
    assert (served.admissions, served.preemptions, served.recomputed_tokens) == (40, 0, 0)
    assert served.operations == 80 + served.decoded


def test_under_pressure_the_latest_gives_way_and_comes_back() -> None:
    arrivals = [Arrival(name, 0.0, CHUNK, 100, (name,)) for name in range(3)]
    served = replay(arrivals, 3 * CHUNK // BLOCK_SIZE + 3)
    assert served.peak_running == 3
    assert (served.preemptions, served.resumed) == (1, 1)
    # the first step that needs second new blocks finds none; the latest has generated 17 tokens by then, and its full
    # blocks are found again as far as the two others have left them
    assert served.decoded + 1 == sum(arrival.output_tokens - 1 for arrival in arrivals)
    assert 0 < served.recomputed_tokens < CHUNK + 17


class InOrder(OurManager):
    """Remembers who got blocks, in order."""

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self.seated: list[int] = []

    def enter(self, ticket: tuple[int, Int32]) -> Entry | None:
        entry = super().enter(ticket)
        self.seated += [] if entry is None else [ticket[0]]
        return entry

    def again(self, handle: int, token: int | None) -> Entry | None:
        entry = super().again(handle, token)
        self.seated += [] if entry is None else [self._names[handle]]
        return entry


def test_whoever_gave_way_comes_before_the_next() -> None:
    late = Arrival(3, 0.05, BLOCK_SIZE, 1, (9,))
    arrivals = [Arrival(name, 0.0, CHUNK, 100, (name,)) for name in range(3)] + [late]
    manager = InOrder(3 * CHUNK // BLOCK_SIZE)
    Replay(manager, manager.available_blocks, Pace()).run(arrivals)
    assert manager.seated == [0, 1, 2, 2, 3]


def test_shared_prefixes_are_found() -> None:
    arrivals = [
        Arrival(name, float(name), arrival.prompt_tokens, 2, arrival.chunks)  # one in a step: each is written in time
        for name, arrival in enumerate(mooncake(40))
    ]
    served = replay(arrivals, sum(-(-arrival.final_length // BLOCK_SIZE) for arrival in arrivals))
    assert served.hit_rate == ceiling(arrivals) > 0


def test_a_request_that_never_fits_is_named() -> None:
    with pytest.raises(AssertionError, match="request 0 does not fit into 3 blocks"):
        replay(azure(1), 3)


def test_pairs_take_turns() -> None:
    calls: list[str] = []

    def round_of(name: str, seconds: float) -> float:
        calls.append(name)
        return seconds

    mine, other = paired(lambda: round_of("ours", len(calls)), lambda: round_of("other", 30.0), 3)
    assert calls == ["ours", "other", "other", "ours", "ours", "other"]
    assert (mine, other) == (3, 30)
    row = against("what", (2e-6, 10e-6), 4, share=2)
    assert (row.ours, row.other, row.ratio, row.met) == (1, 5, 5, True)
    assert against("what", (2e-6, 10e-6), 6).met is False


def test_every_operation_has_its_place_in_the_curve() -> None:
    measured = costs(1_000, 3)
    assert {name.split()[0].strip(",") for name in measured} >= {
        *("append_batch", "commit_batch", "admit", "commit", "append", "reserve", "fork", "truncate", "free"),
        *("preempt", "resume", "lookup", "pin", "unpin", "evict", "free_batch", "stats", "available_blocks"),
    }
    assert min(measured.values()) > 0


def test_the_page_shows_the_numbers_beside_it() -> None:
    numbers = json.loads((DOCUMENTS / "manager.json").read_text(encoding="utf-8"))
    assert (DOCUMENTS / "manager.md").read_text(encoding="utf-8") == render(numbers)
