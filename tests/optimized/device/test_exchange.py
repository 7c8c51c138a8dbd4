"""Requests between a host manager and a device pool: one owner of each block, and nothing lost on the way."""

import random

import pytest
import torch
from torch import Tensor

from pagedkv.optimized import BlockManager, DevicePool, RowOutcome
from pagedkv.optimized.device.exchange import DeviceExchange
from pagedkv.spec import HOLE, Misuse, Ok, Reason, Refused, RequestId

BLOCKS, SIZE, ROWS = 24, 2, 5


class Engine:
    """Both sides, and a cache that holds the token of each position, so that what a table names can be read."""

    def __init__(self, seed: int, window: int | None = None, leased: int = 8) -> None:
        self.rng = random.Random(seed)
        self.manager = BlockManager(BLOCKS, SIZE, sliding_window=window)
        self.pool = DevicePool(BLOCKS, SIZE, ROWS, 16, sliding_window=window, leased=True)
        self.cache = torch.full((BLOCKS, SIZE, 1, 1), -1.0)
        self.exchange = DeviceExchange(self.manager, self.pool, [self.cache])
        assert self.exchange.lease(leased) == Ok()
        self.texts: dict[RequestId, list[int]] = {}
        self.names = iter(range(10_000))

    def admit(self) -> None:
        """A prompt that begins like others, computed on the host."""
        self.compute(str(next(self.names)), [self.rng.randint(0, 1) for _ in range(self.rng.randint(1, 7))])

    def compute(self, name: str, text: list[int]) -> None:
        """On the host, if it fits."""
        outcome = self.manager.admit(name, text)
        if isinstance(outcome, Ok):
            table = self.manager.snapshot([name]).tables[name]
            for position in range(outcome.cached_tokens, len(text)):
                self.cache[table[position // SIZE], position % SIZE] = float(text[position])
            self.manager.commit(name, len(text))
            self.texts[name] = text

    def decode(self) -> int:
        """A token for each row; returns how many were refused."""
        plan = self.pool.append()
        for source, destination in plan.copies.tolist():
            if source >= 0:
                self.cache[destination] = self.cache[source]
        by_row = {row: name for name, row in self.exchange.rows.items()}
        for row, (outcome, slot) in enumerate(zip(plan.outcome.tolist(), plan.slot_mapping.tolist(), strict=True)):
            if outcome == RowOutcome.OK:
                token = self.rng.randint(0, 1)
                self.cache[slot // SIZE, slot % SIZE] = float(token)
                self.texts[by_row[row]].append(token)
        self.pool.release_window()
        return plan.outcome.tolist().count(RowOutcome.CAPACITY)

    def read(self, name: RequestId) -> list[int | None]:
        """The text through the tables, None where a window has released it."""
        if name in self.exchange.rows:
            row = self.exchange.rows[name]
            table, length = self.pool.block_tables[row].tolist(), int(self.pool.seq_lens[row])
        else:
            seen = self.manager.snapshot([name])
            table, length = list(seen.tables[name]), seen.lengths[name].length
        blocks = [table[position // SIZE] for position in range(length)]
        return [
            None if block == HOLE else int(self.cache[block, position % SIZE]) for position, block in enumerate(blocks)
        ]

    def check(self) -> None:
        """Texts are what they were, and each block is one side's."""
        assert not self.pool.check().any()
        self.manager.check()
        for name, text in self.texts.items():
            read = self.read(name)
            assert [token for token in read if token is not None] == [
                token for token, there in zip(text, read, strict=True) if there is not None
            ]
            assert self.manager.config.sliding_window or None not in read

    def do(self) -> None:
        """Something, at random."""
        here = [name for name in self.texts if name not in self.exchange.rows]
        there, unused = list(self.exchange.rows), [r for r in range(ROWS) if r not in self.exchange.rows.values()]
        match self.rng.randint(0, 9):
            case 0 | 1:
                self.admit()
            case 2 | 3 if here and unused:
                assert self.exchange.send(self.rng.choice(here), unused[0]) == Ok()
            case 4 if there and unused:
                parent, child = self.rng.choice(there), str(next(self.names))
                assert self.exchange.fork(parent, child, unused[0]) == Ok()
                self.texts[child] = list(self.texts[parent])
            case 5 if there:
                name = self.rng.choice(there)
                outcome = self.exchange.take_back(name, self.texts[name])
                assert outcome in (Ok(), Refused(Reason.CAPACITY))
            case 6 if there and self.rng.random() < 0.5:
                name = self.rng.choice(there)
                self.exchange.free(name)
                del self.texts[name]
            case 7 if here:
                name = self.rng.choice(here)
                self.manager.free(name)
                del self.texts[name]
            case 8 if self.rng.random() < 0.3:
                self.exchange.permute(self.rng.sample(range(BLOCKS), BLOCKS))
            case 8:
                self.exchange.return_lease(self.rng.randint(0, 3))
                self.exchange.lease(self.rng.randint(1, 3))
            case _:
                self.decode()

    def drain(self) -> None:
        """Everything goes; every block is the manager's again, and available."""
        for name in list(self.texts):
            (self.exchange if name in self.exchange.rows else self.manager).free(name)
        self.exchange.end_loans()
        self.exchange.return_lease(BLOCKS)
        assert self.manager.available_blocks == BLOCKS
        assert not self.pool.references.any()


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_goes_back_and_forth_keeps_its_text_and_no_block_is_lost(seed: int, window: int | None) -> None:
    engine = Engine(seed, window)
    for _ in range(120):
        engine.do()
        engine.check()
        if any(len(text) > 26 for text in engine.texts.values()):
            break
    engine.drain()


def test_what_was_decoded_on_the_device_is_found_on_the_host() -> None:
    engine = Engine(0)
    engine.compute("a", [1, 2, 3])
    assert engine.exchange.send("a", 0) == Ok()
    for _ in range(3):
        engine.decode()
    text = engine.texts["a"]
    assert engine.manager.lookup(text) == Ok(cached_tokens=2)
    assert engine.exchange.take_back("a", text) == Ok()
    assert engine.manager.lookup(text) == Ok(cached_tokens=6)
    assert engine.manager.admit("b", [*text, 9]) == Ok(cached_tokens=6)
    engine.check()


def test_forks_share_what_they_have_in_common_until_one_is_taken_back() -> None:
    engine = Engine(0, leased=6)
    engine.compute("a", [1, 2])
    engine.exchange.send("a", 0)
    for _ in range(2):
        engine.decode()
    engine.exchange.fork("a", "b", 1)
    engine.texts["b"] = list(engine.texts["a"])
    assert int(engine.pool.num_free) == 5
    assert engine.exchange.take_back("a", engine.texts["a"]) == Ok()  # the block that both have is copied
    engine.check()
    assert (int(engine.pool.num_free), engine.exchange.rows) == (5, {"b": 1})
    engine.drain()


def test_nothing_changes_if_what_is_shared_cannot_be_copied() -> None:
    engine = Engine(0, leased=BLOCKS - 1)
    engine.compute("a", [1, 2])
    engine.exchange.send("a", 0)
    engine.decode()
    engine.exchange.fork("a", "b", 1)
    before = [tensor.clone() for tensor in vars(engine.pool._state).values()]
    assert engine.exchange.take_back("a", engine.texts["a"]) == Refused(Reason.CAPACITY)
    assert all(torch.equal(a, b) for a, b in zip(before, vars(engine.pool._state).values(), strict=True))
    assert engine.exchange.rows == {"a": 0, "b": 1}
    engine.texts["b"] = list(engine.texts["a"])
    engine.check()


def test_blocks_that_many_requests_share_keep_no_loan_alive() -> None:
    """While somebody always reads the common prefix, loans of requests that are gone end all the same."""
    engine = Engine(0, leased=6)
    for number in range(12):
        engine.compute(str(number), [1, 0, 1, 0, number % 2, 1])
        assert engine.exchange.send(str(number), number % 2) == Ok()
        engine.decode()
        if number:
            before = str(number - 1)
            assert engine.exchange.take_back(before, engine.texts[before]) == Ok()
            engine.manager.free(before)
            del engine.texts[before]
        engine.check()
        assert len(engine.exchange._loans) <= 2
    engine.drain()


def test_a_text_that_was_cut_within_its_rollback_is_taken_back() -> None:
    manager = BlockManager(16, 2, sliding_window=3, max_rollback=4)
    pool = DevicePool(16, 2, 2, 12, leased=True, sliding_window=3, max_rollback=4)
    exchange = DeviceExchange(manager, pool, [torch.zeros(16, 2, 1, 1)])
    exchange.lease(8)
    manager.admit("a", [1, 2])
    manager.commit("a", 2)
    exchange.send("a", 0)
    for _ in range(10):
        pool.append(numbers(0))
        pool.release_window(numbers(0))
    assert pool.truncate(numbers(0), numbers(8)).tolist() == [RowOutcome.OK]
    assert exchange.take_back("a", [1, 2, 3, 4, 5, 6, 7, 8]) == Ok()
    manager.check()


def test_misuse() -> None:
    engine = Engine(0)
    engine.manager.admit("a", [1, 2, 3])
    exchange = engine.exchange
    with pytest.raises(Misuse, match="parent="):
        exchange.send("a", 0)  # not computed
    engine.manager.commit("a", 3)
    exchange.send("a", 0)
    for call, argument in (
        (lambda: exchange.send("a", 1), "request="),
        (lambda: exchange.send("b", 0), "row="),
        (lambda: exchange.send("b", ROWS), "row="),
        (lambda: exchange.take_back("b", [1]), "request="),
        (lambda: exchange.take_back("a", [1, 2]), "tokens="),
        (lambda: exchange.take_back("a", [1, 2, 4]), "tokens="),
        (lambda: exchange.fork("a", "c", 0), "row="),
        (lambda: exchange.free("b"), "request="),
        (lambda: exchange.lease(0), "blocks="),
        (lambda: DeviceExchange(engine.manager, DevicePool(BLOCKS, SIZE + 1, 2, 2), []), r"pool\.block_size="),
        (lambda: DeviceExchange(BlockManager(4, 2, overlapped_steps=True), leased_pool(4, 2), []), "overlapped"),
        (lambda: DeviceExchange(BlockManager(4, 2), DevicePool(4, 2, 2, 2), []), r"pool\.leased="),
        (lambda: DeviceExchange(engine.manager, engine.pool, [engine.cache[1:]]), r"caches\[0\]="),
    ):  # fmt: skip
        with pytest.raises(Misuse, match=f"^{argument}"):
            call()
    engine.exchange.free("a")


def leased_pool(num_blocks: int, block_size: int) -> DevicePool:
    return DevicePool(num_blocks, block_size, 2, 2, leased=True)


def numbers(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def test_a_pool_hands_out_what_is_leased_to_it_and_nothing_else() -> None:
    pool = DevicePool(8, 4, 2, 4, leased=True)
    assert pool.admit(numbers(0), numbers(4)).outcome.tolist() == [RowOutcome.CAPACITY]
    pool.lease(numbers(5, 2))
    assert pool.admit(numbers(0, 1), numbers(4, 8)).outcome.tolist() == [RowOutcome.OK, RowOutcome.CAPACITY]
    assert pool.block_tables[0, 0].item() == 2
    assert pool.return_lease(3).tolist() == [5, -1, -1]
    assert pool.free(numbers(0)).tolist() == [RowOutcome.OK]
    assert (pool.return_lease(1).tolist(), int(pool.num_free), pool.check().any().item()) == ([2], 0, False)


def test_nothing_is_returned_of_an_empty_lease_whatever_memory_holds() -> None:
    pool = DevicePool(8, 4, 2, 4, leased=True)
    pool._state.free_list.fill_(2**31 - 1)
    assert pool.return_lease(3).tolist() == [-1, -1, -1]
    assert not pool.check().any()


def test_what_is_lent_is_read_and_never_written_nor_handed_out() -> None:
    pool = DevicePool(8, 4, 3, 4, leased=True)
    pool.lease(numbers(7))
    tables = numbers(1, 3, 1, 4).view(2, 2)
    assert pool.import_(numbers(0, 1), tables, numbers(6, 7)).tolist() == [RowOutcome.OK, RowOutcome.OK]
    assert pool.references.tolist() == [0, 3, 0, 2, 2, 0, 0, 0]
    plan = pool.append(numbers(0, 1))
    assert (plan.outcome.tolist(), plan.copies.tolist()) == ([RowOutcome.OK, RowOutcome.CAPACITY], [[3, 7], [-1, -1]])
    exported = pool.export(numbers(0, 2, 9))
    assert exported.seq_lens.tolist() == [7, 0, 0]
    assert exported.goes_along[0].tolist() == [False, True, False, False]
    pool.hand_over(numbers(0))
    pool.free(numbers(1))
    assert (pool.references.tolist(), int(pool.num_free)) == ([0, 1, 0, 1, 1, 0, 0, 0], 0)
    pool.end_loan(numbers(1, 3, 4))
    assert (pool.references.sum().item(), pool.check().any().item()) == (0, False)
