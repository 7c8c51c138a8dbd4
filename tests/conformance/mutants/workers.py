"""Processes that hunt: one that dies, or takes too long, costs one mutant and not the run."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, TypeAlias

LIMIT_S: Final = 900
"""That one mutant may take."""

Task: TypeAlias = Callable[[str], Any]


class Answer(NamedTuple):
    """What a task gave back, or why it did not."""

    key: str
    value: Any
    error: str


def serve(connection: Connection, task: Task) -> None:
    """In the process: one key after another, until there is nobody to ask."""
    while True:
        try:
            key = connection.recv()
        except EOFError:
            return
        try:
            connection.send((task(key), ""))
        except Exception as error:  # whatever a mutant does to its hunter is an answer, too
            connection.send((None, f"{type(error).__name__}: {error}"))


class _Worker:
    """A process, started when it is needed and again after it has died."""

    def __init__(self, task: Task) -> None:
        self._task, self._started = task, False

    def ask(self, key: str) -> Answer:
        """Have one key done."""
        if not self._started:
            self._start()
        try:
            self._connection.send(key)
            if self._connection.poll(LIMIT_S):
                return Answer(key, *self._connection.recv())
            error = f"not done after {LIMIT_S} s"
        except (EOFError, OSError):
            self._process.join()
            error = f"the process ended with {self._process.exitcode}"
        self.end()
        return Answer(key, None, error)

    def _start(self) -> None:
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self._task), daemon=True)
        self._process.start()
        theirs.close()
        self._started = True

    def end(self) -> None:
        """Stop the process, if there is one."""
        if self._started:
            self._connection.close()
            self._process.terminate()
            self._process.join()
            self._started = False


def answers(task: Task, keys: Sequence[str], jobs: int) -> Iterator[Answer]:
    """What `task` (a function that can be imported) makes of each key, as they are done, in so many processes."""
    workers = [_Worker(task) for _ in range(jobs)]
    free = list(workers)

    def one(key: str) -> Answer:
        worker = free.pop()
        try:
            return worker.ask(key)
        finally:
            free.append(worker)

    with ThreadPoolExecutor(jobs) as threads:
        try:
            yield from (future.result() for future in as_completed([threads.submit(one, key) for key in keys]))
        finally:
            threads.shutdown(cancel_futures=True)
            for worker in workers:
                worker.end()
