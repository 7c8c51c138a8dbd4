"""Part of `verify`: every shipped kernel configuration compiled for GPUs that need not be there, and what it costs."""

from collections.abc import Sequence
from dataclasses import asdict

from pagedkv.cli.parts import Options
from pagedkv.cli.report import Section, columns, verdict
from pagedkv.optimized.aot import TARGETS, KernelAudit, audit

QUICK_TARGETS = ("sm_90",)


def run(options: Options) -> Section:
    """Compile, and read registers, spills and shared memory off the machine code; `quick` takes one target."""
    seen = set[str]()

    def tell(each: KernelAudit) -> None:
        if each.target not in seen:
            options.say(f"kernels: compiling for {each.target}")
            seen.add(each.target)

    audits = audit(QUICK_TARGETS if options.quick else tuple(TARGETS), progress=tell)
    problems = [
        f"VIOLATED {each.kernel} ({each.configuration}) on {each.target}: {'; '.join(each.problems())}"
        for each in audits
        if each.problems()
    ]
    data = {"kernels": [{**asdict(each), "problems": each.problems()} for each in audits]}
    return Section("kernels compiled", verdict(not problems), (*columns(_rows(audits)), *problems), data)


def _rows(audits: Sequence[KernelAudit]) -> list[tuple[object, ...]]:
    """A line a target and kernel: the most that any of its configurations takes."""
    rows: list[tuple[object, ...]] = [
        ("kernel", "target", "configurations", "registers", "spilled bytes", "shared bytes", "instructions")
    ]
    for kernel in dict.fromkeys(each.kernel for each in audits):
        for target in dict.fromkeys(each.target for each in audits):
            of = [each for each in audits if (each.kernel, each.target) == (kernel, target)]
            if of:
                costs = ("registers", "spill_bytes", "shared_bytes", "instructions")
                rows.append((kernel, target, len(of), *(max(getattr(each, cost) for each in of) for cost in costs)))
    return rows
