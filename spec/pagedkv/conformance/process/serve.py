"""A Python subject that answers on stdout what it is asked on stdin.

    python -m pagedkv.conformance.process.serve [--no-fork] NAME

NAME is one of `subjects`. The interpreter imports it once and then forks: the child answers, and the parent waits. If
the child dies, the parent says so in its place and forks another one, which needs no import, and if nobody is there
any more to ask, it ends a child that hangs. With `--no-fork` it answers itself: what has started threads when it was
imported does not work in a child. Neither does what has initialised a GPU, so if an import has loaded the driver of
one, it does so unasked. What the subject prints goes to stderr.
"""

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from select import POLLIN, poll
from typing import Any, BinaryIO, Final, NoReturn, TypeAlias

from pagedkv.conformance.differential.compare import subject_call
from pagedkv.conformance.differential.form import malformed_answer, malformed_snapshot
from pagedkv.conformance.differential.violation import ANSWERS, OBSERVED, RAISES, Violation, message_of, told
from pagedkv.conformance.importing import imported, no_subject
from pagedkv.conformance.process.ending import ending
from pagedkv.conformance.process.protocol import Answer, Broken, Json, answer_json, capabilities_json, read, write
from pagedkv.conformance.process.running import SURVIVES
from pagedkv.spec import Batch, Config, Misuse, Ok, Outcome, RequestId
from pagedkv.spec.subject import BlockManagerSubject, Snapshot, SubjectFactory
from pagedkv.spec.trace_fields import read_header, read_line
from pagedkv.spec.trace_json import array, integer, string

GRACE_MS: Final = 10_000
"""How long a child may go on when nobody listens any more."""
DRIVERS: Final = (b"libcuda.so", b"libamdhip64.so")
"""Of NVIDIA and AMD, as the files that a process has mapped are called."""


class Server:
    """Answers line by line; each header makes a new subject."""

    def __init__(self, factory: SubjectFactory) -> None:
        self.factory = factory
        self.subject: BlockManagerSubject | None = None

    def answer(self, line: bytes) -> bytes:
        """The line that answers a line."""
        try:
            value = read(line)
            return write(self._start(value) if "pagedkv_trace" in value else self._operate(value))
        except Misuse as misuse:  # of the protocol: a line that is none
            return write(answer_json(Answer(misuse), batch=False))

    def _start(self, value: Json) -> Json:
        config = read_header("header", value).config()
        self.subject = None  # before there is another one
        try:
            with told(RAISES, "making it", None):
                made = self.factory(config)
                if wrong := no_subject(made):
                    raise Violation(RAISES, wrong)
                capabilities = made.capabilities
        except Misuse as misuse:
            return answer_json(Answer(_whole(misuse)), batch=False)
        except Violation as failure:
            return answer_json(Answer(_broken(failure)), batch=False)
        self.subject, self.config, self.capabilities = made, config, capabilities
        return capabilities_json(capabilities, restarts=True)

    def _operate(self, value: Json) -> Json:
        if self.subject is None:
            raise Misuse("line", value, "a header first")
        observe = value.pop("observe", None)
        asked = None if observe in (None, True) else list(array(string)("observe", observe))
        kind = value.get("op")
        rows, call = _call(self.subject, value, self.config)
        answer = _answered(call, rows)
        if observe is not None and not isinstance(answer.outcomes, Broken):
            seen = self._observed(asked)
            answer = Answer(seen) if isinstance(seen, Broken) else Answer(answer.outcomes, seen)
        return answer_json(answer, batch=kind == "batch")

    def _observed(self, asked: list[RequestId] | None) -> Snapshot | Broken:
        assert self.subject is not None
        try:
            with told(OBSERVED, "observe", None):
                seen = self.subject.observe(asked)
        except Violation as failure:
            return _broken(failure)
        wrong = malformed_snapshot(seen, self.capabilities, whole=asked is None) or _not_text(seen)
        return Broken(OBSERVED, wrong) if wrong else seen


def _call(
    subject: BlockManagerSubject, value: Json, config: Config
) -> tuple[int, Callable[[], tuple[Outcome, ...]]]:  # fmt: skip
    """How many outcomes are due, and the call that brings them."""
    if value.get("op") == "observe":
        return 1, lambda: (Ok(),)
    if value.get("op") == "permute" and "new_block" in value:
        new_block = array(integer)("new_block", value["new_block"])
        return 1, lambda: (subject.permute(new_block),)
    operation = read_line("line", value).op
    rows = len(operation.rows) if isinstance(operation, Batch) else 1
    return rows, lambda: subject_call(subject, operation, config)


def _answered(call: Callable[[], Any], rows: int) -> Answer:
    """As the driver judges a subject that it calls itself."""
    try:
        with told(RAISES, "the subject", None):
            outcomes = call()
    except Misuse as misuse:
        return Answer(_whole(misuse))
    except Violation as failure:
        return Answer(_broken(failure))
    wrong = malformed_answer(outcomes, rows)
    return Answer(Broken(ANSWERS, wrong) if wrong else tuple(outcomes))


def _whole(misuse: Misuse) -> Misuse:
    """A subclass of a stranger's may have forgotten the argument, or raise at what it says."""
    try:
        str(misuse)
        usual = isinstance(misuse.argument, str)
    except Exception:  # what belongs to others may raise anything
        usual = False
    whole = Misuse(type(misuse).__name__, message_of(misuse), "an argument, a value and what is allowed")
    return misuse if usual else whole


def _broken(failure: Violation) -> Broken:
    return Broken(failure.law, failure.detail, failure.kind)


def _not_text(seen: Snapshot) -> str | None:
    """JSON would make text of ids and namespaces that are none."""
    wrong = [name for name in seen.lengths if not isinstance(name, str)]
    wrong += [i.namespace for i in (seen.index or {}).values() if not isinstance(i.namespace, str)]
    return f"ids and namespaces {wrong!r} are not those that it was given, which are text" if wrong else None


Answering: TypeAlias = Callable[[bytes], bytes]
"""Makes an answer of a question, both a line."""


def serve(answer: Answering, questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer until there are no more questions."""
    for line in iter(questions.readline, b""):
        answers.write(answer(line))
        answers.flush()


def supervise(work: Callable[[], None], answers: BinaryIO) -> None:
    """Run `work` in a child, and again in another one whenever a child has died of it. SIGINT ends a child."""
    while True:
        done, doing = os.pipe()
        with warnings.catch_warnings():  # of threads: those of an import have done nothing
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.close(done)
            _work(work, doing)
        os.close(doing)
        signal.signal(signal.SIGINT, partial(_kill, child))
        finished = _finished(child, done)
        os.close(done)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # once the child has been waited for, its id may be another's
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if finished:
            return
        answers.write(write(answer_json(Answer(Broken(SURVIVES, ending(code), ending(code))), batch=False)))
        answers.flush()


def _work(work: Callable[[], None], doing: int) -> NoReturn:
    """In the child: it ends here, whatever comes, and runs nothing of what the parent has to do at its end."""
    try:
        work()
        os.write(doing, b".")
    except BrokenPipeError:  # nobody listens any more
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _kill(child: int, *_: object) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def _finished(child: int, done: int) -> bool:
    """Whether the child has come to the end of the questions. One that has died has not; one that hangs is ended."""
    watch = poll()
    watch.register(done, POLLIN)
    watch.register(0, 0)  # only for being hung up
    while not any(descriptor == done for descriptor, _ in watch.poll()):
        if not _ready(done, GRACE_MS):
            _kill(child)
            return True
    return os.read(done, 1) == b"."


def _ready(descriptor: int, wait_ms: int) -> bool:
    watch = poll()
    watch.register(descriptor, POLLIN)
    return bool(watch.poll(wait_ms))


def main(load: Callable[[], Callable[[], Answering]], *, fork: bool = True) -> None:
    """Answer on stdin and stdout, in a child or in this process.

    `load` imports what is needed, once; what it returns begins to answer, in each child anew. If that has loaded the
    driver of a GPU, this process answers itself.
    """
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what is printed, from native code too
        sys.stdout = sys.stderr
        begin = load()
        if fork and not gpu_driver_loaded():
            supervise(lambda: serve(begin(), sys.stdin.buffer, answers), answers)
        else:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # nobody is left to give up what hangs
            serve(begin(), sys.stdin.buffer, answers)


def gpu_driver_loaded() -> bool:
    """Whether something has loaded the driver of a GPU: no child survives that it was initialised before the fork.

    Nobody can be asked whether it was: torch says no even though `torch.cuda.is_available()` has done it.
    """
    with suppress(OSError):  # a system without /proc
        maps = Path("/proc/self/maps").read_bytes()
        return any(driver in maps for driver in DRIVERS)
    return False


def _manager(name: str) -> Callable[[], Answering]:
    factory = _factory(name)
    return lambda: Server(factory).answer


def _factory(name: str) -> SubjectFactory:
    """The factory called `name`; if there is none, one that says why to every header."""
    try:
        return imported(name)
    except Misuse as misuse:
        problem = Misuse("subject", f"process:{name}", misuse.allowed)

    def none(config: Config) -> BlockManagerSubject:
        raise problem

    return none


def run(load: Callable[[str], Callable[[], Answering]], usage: str, arguments: Sequence[str]) -> None:
    """The command of a module that serves what `load` finds under a name."""
    *how, name = arguments or ["--help"]
    if how not in ([], ["--no-fork"]) or name.startswith("-"):
        sys.exit(f"usage: python -m {usage}")
    with suppress(BrokenPipeError):
        main(partial(load, name), fork=not how)


if __name__ == "__main__":
    run(_manager, "pagedkv.conformance.process.serve [--no-fork] NAME, as pagedkv --subject has it", sys.argv[1:])
