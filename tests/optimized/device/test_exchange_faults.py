"""Requests between host and device when something goes wrong: nothing is lost, and nothing is owned twice."""

import pytest

from pagedkv.spec import Misuse, Ok
from tests.optimized.device.test_exchange import BLOCKS, Engine, numbers


@pytest.mark.parametrize("failing", ["manager.adopt", "_copy"])
def test_a_fault_on_the_way_back_leaves_the_request_where_it_was(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(0, leased=6)
    engine.compute("a", [1, 2])
    engine.exchange.send("a", 0)
    engine.decode()
    engine.exchange.fork("a", "b", 1)
    engine.texts["b"] = list(engine.texts["a"])

    def fault(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(engine.exchange, "manager", engine.manager)
        owner, name = (engine.manager, "adopt") if "." in failing else (engine.exchange, "_copy")
        patched.setattr(owner, name, fault)
        with pytest.raises(MemoryError):
            engine.exchange.take_back("a", engine.texts["a"])
    engine.check()
    assert engine.exchange.take_back("a", engine.texts["a"]) == Ok()
    engine.check()
    engine.drain()


@pytest.mark.parametrize("then", ["take_back", "free"])
def test_what_the_manager_has_taken_over_leaves_the_pool_later(then: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(0, leased=6)
    engine.compute("a", [1, 2])
    engine.exchange.send("a", 0)
    for _ in range(4):
        engine.decode()

    def fault(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(engine.pool, "hand_over", fault)
        with pytest.raises(MemoryError):
            engine.exchange.take_back("a", engine.texts["a"])
    if then == "take_back":
        assert engine.exchange.take_back("a", engine.texts["a"]) == Ok()
    else:
        engine.exchange.free("a")
        engine.texts.clear()
    engine.check()
    engine.drain()


def test_blocks_in_hand_when_something_failed_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(0)

    def fault(*_: object) -> None:
        raise MemoryError

    for owner, name, call in (
        (engine.pool, "lease", lambda: engine.exchange.lease(2)),
        (engine.manager, "return_lease", lambda: engine.exchange.return_lease(3)),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, fault)
            with pytest.raises(MemoryError):
                call()
    engine.exchange.permute([*range(5, BLOCKS), *range(5)])
    engine.drain()


def test_what_was_freed_on_the_device_is_not_taken_back() -> None:
    engine = Engine(0)
    engine.compute("a", [1, 2, 3])
    engine.exchange.send("a", 0)
    engine.pool.free(numbers(0))
    with pytest.raises(Misuse, match=r"tokens=.* has been freed"):
        engine.exchange.take_back("a", [1, 2, 3])
    engine.texts.clear()
    engine.exchange.free("a")
    engine.drain()


def test_a_row_that_is_in_use_behind_the_exchange_is_no_place_for_a_request() -> None:
    engine = Engine(0)
    engine.compute("a", [1, 2, 3])
    engine.pool.admit(numbers(0), numbers(3))
    with pytest.raises(Misuse, match=r"row=0 .*WRONG_ROW"):
        engine.exchange.send("a", 0)
    assert engine.exchange.send("a", 1) == Ok()
    with pytest.raises(Misuse, match=r"row=0 .*WRONG_ROW"):
        engine.exchange.fork("a", "b", 0)
    assert engine.exchange.rows == {"a": 1}
    engine.pool.free(numbers(0))
    engine.check()
    engine.drain()
