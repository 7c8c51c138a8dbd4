"""With `debug` a manager sees to it that one thread uses it, until it is handed over."""

import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pagedkv.optimized.manager import BlockManager
from pagedkv.spec import Misuse, Reserve


CALLS: dict[str, Callable[[BlockManager], object]] = {
    "admit": lambda manager: manager.admit("new", [1, 2, 3]),
    "admit_external": lambda manager: manager.admit_external("new", [1, 2, 3], 2),
    "adopt": lambda manager: manager.adopt("a", [1, 2, 3], manager.snapshot(["a"]).tables["a"]),
    "append": lambda manager: manager.append("a", [5]),
    "append_batch": lambda manager: manager.append_batch(["a"], [5]),
    "begin_step": lambda manager: manager.begin_step("s"),
    "blocks_needed": lambda manager: manager.blocks_needed(Reserve("a", 9)),
    "check": lambda manager: manager.check(),
    "commit": lambda manager: manager.commit("b", 2),
    "commit_batch": lambda manager: manager.commit_batch(["b"], [2]),
    "end_step": lambda manager: manager.end_step("flight"),
    "evict": lambda manager: manager.evict(1),
    "footprint": lambda manager: manager.footprint(),
    "fork": lambda manager: manager.fork("a", "new"),
    "free": lambda manager: manager.free("a"),
    "free_batch": lambda manager: manager.free_batch(["a"]),
    "invalidate": lambda manager: manager.invalidate("a", 0),
    "lease": lambda manager: manager.lease(1),
    "lookup": lambda manager: manager.lookup([1, 2]),
    "permute": lambda manager: manager.permute(range(9, -1, -1)),
    "pin": lambda manager: manager.pin([1, 2]),
    "preempt": lambda manager: manager.preempt("a"),
    "return_lease": lambda manager: manager.return_lease([]),
    "reserve": lambda manager: manager.reserve("a", 9),
    "reserve_batch": lambda manager: manager.reserve_batch(["a"], [9]),
    "reset_prefix_index": lambda manager: manager.reset_prefix_index(),
    "resume": lambda manager: manager.resume("p"),
    "rows": lambda manager: manager.rows(["a"]),
    "snapshot": lambda manager: manager.snapshot(),
    "stats": lambda manager: manager.stats(),
    "take_events": lambda manager: manager.take_events(),
    "truncate": lambda manager: manager.truncate("a", 1),
    "unpin": lambda manager: manager.unpin([1, 2, 3, 4]),
}


def watched(**options: Any) -> BlockManager:
    """A manager for which every one of these calls goes through (but permute, while the step is in flight)."""
    manager = BlockManager(10, 2, overlapped_steps=True, events=True, **options)
    for request, tokens in (("a", [1, 2, 3]), ("b", [1, 2, 9]), ("p", [7])):
        manager.admit(request, tokens)
    manager.commit("a", 3)
    manager.preempt("p")
    manager.pin([1, 2, 3, 4])
    manager.begin_step("flight")
    return manager


def elsewhere(call: Callable[[], object], name: str = "the other thread") -> object:
    """What a call in another thread returns, or the misuse that it raises."""
    results: list[object] = []

    def run_it() -> None:
        try:
            results.append(call())
        except Misuse as misuse:
            results.append(misuse)

    thread = threading.Thread(target=run_it, name=name)
    thread.start()
    thread.join()
    return results[0]


def test_these_are_all_operations() -> None:
    public = {name for name, _ in inspect.getmembers(BlockManager, inspect.isfunction) if not name.startswith("_")}
    assert public == CALLS.keys() | {"hand_over"}


@pytest.mark.parametrize("name", CALLS)
def test_another_thread_may_do_nothing_until_it_is_handed_over(name: str) -> None:
    manager = watched(debug=True)
    before = (manager.snapshot(), manager.stats())
    misuse = elsewhere(lambda: CALLS[name](manager))
    assert isinstance(misuse, Misuse)
    assert misuse.argument == "thread"
    assert "the other thread" in str(misuse)
    assert threading.current_thread().name in str(misuse)
    assert (manager.snapshot(), manager.stats()) == before
    manager.check()
    assert len(manager.take_events()) == 1  # that of the commit, still

    def handed_over() -> object:
        manager.hand_over()
        return CALLS[name](manager) if name != "permute" else None

    assert not isinstance(elsewhere(handed_over), Misuse)
    with pytest.raises(Misuse, match="thread"):
        manager.stats()
    manager.hand_over()
    manager.check()


def test_without_debug_nobody_watches() -> None:
    manager = watched()
    assert not isinstance(elsewhere(lambda: manager.append("a", [5])), Misuse)
    manager.hand_over()
    manager.check()
