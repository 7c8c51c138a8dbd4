"""The processes that hunt."""

import os

from tests.conformance.mutants.workers import answers


def dies(key: str) -> str:
    """A task that takes its process along, for all keys but one."""
    if key == "stays":
        return key
    os._exit(3)


def raises(key: str) -> str:
    raise ValueError(key)


def test_a_process_that_dies_costs_one_key() -> None:
    found = {answer.key: answer for answer in answers(dies, ["one", "stays", "two"], 1)}
    assert found["stays"].value == "stays"
    assert found["one"].error == found["two"].error == "the process ended with 3"


def test_what_a_task_raises_is_an_answer() -> None:
    assert [answer.error for answer in answers(raises, ["key"], 1)] == ["ValueError: key"]
