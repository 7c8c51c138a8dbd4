"""Part of `verify`: every shipped kernel configuration compiled for GPUs that need not be there, and what it costs."""

from collections.abc import Sequence
from dataclasses import asdict

from pagedkv.cli.parts import Options
from pagedkv.cli.report import Section, columns, verdict
from pagedkv.optimized.audit.aot import TARGETS, KernelAudit, audit

QUICK_TARGETS = ("sm_90",)


def run(options: Options) -> Section:
    """Compile, and read registers, spills and shared memory off the machine code; `quick` takes one target."""
    seen = set[str]()

    def tell(each: KernelAudit) -> None:
        if each.target not in seen:
            options.say(f"kernels: compiling for {each.target}")
            seen.add(each.target)

    audits = audit(QUICK_TARGETS if options.quick else tuple(TARGETS), progress=tell)
    data = {"kernels": [{**asdict(each), "problems": each.problems()} for each in audits]}
    fit = not any(each.problems() for each in audits)
    return Section("kernels compiled", verdict(fit), tuple(report_lines(audits)), data)


def report_lines(audits: Sequence[KernelAudit]) -> list[str]:
    """A line a kernel: the most that any of its configurations takes, by target."""
    targets = list(dict.fromkeys(each.target for each in audits))
    rows: list[tuple[object, ...]] = [
        ("kernel", "configurations", "registers", "spilled bytes", "shared bytes", "instructions")
    ]
    for kernel in dict.fromkeys(each.kernel for each in audits):
        of_kernel = [[each for each in audits if (each.kernel, each.target) == (kernel, t)] for t in targets]
        most = [
            "/".join(str(max(getattr(each, cost) for each in group)) for group in of_kernel)
            for cost in ("registers", "spill_bytes", "shared_bytes", "instructions")
        ]
        rows.append((kernel, len(of_kernel[0]), *most))
    lines = [f"the most that any configuration takes, on {'/'.join(targets)}:", *columns(rows)]
    problems = ((each, problem) for each in audits for problem in each.problems())
    return lines + [
        f"VIOLATED {each.kernel} ({each.configuration}) on {each.target}: {problem}" for each, problem in problems
    ]
