"""What a kernel is held against in a test run, check by check, as `conformance.suite` has it for block managers.

`checks` lists them: each known failure; each configuration, which is a dtype with a set of options; and whether what is
declared was exercised. A check that fails raises `Broken`, whose text is the whole report. The pytest plugin makes an
item of each.
"""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pagedkv.conformance.attention.held import Held, held
from pagedkv.conformance.attention.judging import ANSWER
from pagedkv.conformance.attention.pins import Pin, changed, load
from pagedkv.conformance.attention.plan import Configuration, Size, configurations
from pagedkv.conformance.attention.report import Failure, configuration_name, together
from pagedkv.conformance.attention.runner import declared, planned_checks, relied_on, undeclared
from pagedkv.conformance.attention.runner import run as hold
from pagedkv.conformance.attention.subjects import made
from pagedkv.conformance.failures.entries import entry_of
from pagedkv.conformance.suite import Broken, Check, Measures, NotApplicable
from pagedkv.spec import Misuse


@dataclass(frozen=True)
class KernelRun:
    """A kernel, and what it is to be held against."""

    name: str
    """As in `--pagedkv-kernel` and `pagedkv attention --subject`."""
    subject: Held
    size: Size
    seed: int
    known: tuple[Pin, ...]
    limit_s: float | None = None

    @property
    def undeclared(self) -> tuple[str, ...]:
        """Capabilities that are not declared, for which nothing is checked."""
        return undeclared(self.subject.capabilities)


def kernel_run(
    name: str, *, seed: int, size: Size = "full", known_failures: str | Path | None = None, limit_s: float | None = None
) -> KernelRun:
    """A run of the kernel of this name. What cannot be run is `Misuse`, and says what could.

    >>> kernel_run("nowhere", seed=0)
    Traceback (most recent call last):
    ...
    pagedkv.spec.misuse.Misuse: subject='nowhere' is not allowed: expected module:factory, or process: before it
    """
    if size not in ("tiny", "full"):
        raise Misuse("kernel_size", size, "tiny or full")
    if seed < 0:
        raise Misuse("seed", seed, "an integer >= 0")
    known = load(known_failures, name) if known_failures else ()
    return KernelRun(name, held(made(name, limit_s=limit_s)), size, seed, known, limit_s)


def checks(run: KernelRun) -> list[Check]:
    """The checks of a kernel, in order.

    >>> run = kernel_run("pagedkv.reference.attention:ReferenceAttention", seed=0, size="tiny")
    >>> [check.name for check in checks(run)][:2]
    ['float32 plain', 'float32 non_causal']
    """
    found: dict[str, Callable[[], Measures]] = {f"known[{pin.name}]": partial(_known, run, pin) for pin in run.known}
    for each in configurations(run.subject.capabilities, run.size):
        found[configuration_name(each.dtype, each.features)] = partial(_configuration, run, each)
    found["exercised"] = partial(_exercised, run)
    return [Check(name, partial(_of_a_subject, check), run) for name, check in found.items()]


def _of_a_subject(check: Callable[[], Measures]) -> Measures:
    """What the check has done. That a `fit` or a `rounding` is none is told in a line."""
    try:
        return check()
    except Misuse as misuse:
        raise Broken(f"no subject: {misuse}") from misuse


def _known(run: KernelRun, pin: Pin) -> Measures:
    if why := changed(pin, run.subject):
        raise Broken(why)
    return {}


def _configuration(run: KernelRun, configuration: Configuration) -> Measures:
    """The kernel in one configuration, as `attention.run` holds it to it."""
    report = hold(run.subject, seed=run.seed, size=run.size, only=[configuration], known=run.known)
    (done,) = report.configurations
    if report.failures:
        raise Broken(_broken_text(run, done.name, report.failures, to_no_law=not report.laws))
    if not report.launches and not report.excused:
        raise NotApplicable("the subject's `fit` leaves nothing of any case")
    compared = done.relations.checked + done.probes.checked + done.bounds.checked
    excused = {f"known {name}": count for name, count in report.excused.items()}
    return {"launches": report.launches, "comparisons": compared, **excused}


def _exercised(run: KernelRun) -> Measures:
    """What is declared has to be exercised by some check, as in `attention.run`.

    The configurations may run in other processes, so it is tried here: of the checks that are planned and that the
    subject's `fit` takes, each that may be the first to exercise something, until one says that it compared anything.
    A check counts here even if the run leaves it out because its law is broken already.
    """
    missing = dict.fromkeys(declared(run.subject.capabilities))
    run.subject.begin()
    for each in configurations(run.subject.capabilities, run.size):
        for law, case in planned_checks(run.subject, each, run.size, run.seed):
            part = run.subject.fit(case) if relied_on(law, case) & missing.keys() else None
            relies = relied_on(law, part) & missing.keys() if part else set()
            if part and relies and run.subject.judge(law, part).checked:
                missing = {name: None for name in missing if name not in relies}
    if missing:
        raise Broken(
            f"declared, but exercised by no case: {', '.join(missing)}\n"
            "so nothing is known about it. Declare what is there, or let `fit` take cases that use it"
        )
    return {}


def _broken_text(run: KernelRun, where: str, failures: Iterable[Failure], *, to_no_law: bool) -> str:
    """The laws and how they are broken, each with its smallest case and the command that repeats it, and the entries
    that would pin them."""
    lines = []
    for told, laws in together(failures).items():
        lines += [f"BROKEN: {', '.join(law for law, _ in laws)}", f"  {told.detail}", f"in {where}, by {told.case}"]
        if told.law == ANSWER and to_no_law:
            lines.append("so it is held to no law in this configuration")
        lines += ["", f"  repeat it:  {_command(run, told)}", ""]
    lines.append("  pin it:     in the file of --pagedkv-known-failures, an entry for each law:")
    lines += [f"    {line}" for each in failures for line in entry_of(law=each.law, case=each.case).splitlines()]
    return "\n".join(lines)


def _command(run: KernelRun, failure: Failure) -> str:
    """What repeats a failure; a case has single quotes within, and nothing else that a shell would read."""
    limit = "" if run.limit_s is None else f" --limit-s {run.limit_s:g}"
    name = shlex.quote(run.name)
    return f'pagedkv attention --subject {name}{limit} --law {failure.law} --case "{failure.case}"'
