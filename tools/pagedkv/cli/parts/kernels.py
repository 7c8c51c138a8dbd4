"""Part of `verify`: the kernels compiled for GPUs that need not be there, what they cost, and whether that is known.

The configurations are few, and have every pair of values; `pagedkv audit --all` compiles the rest.
"""

from collections.abc import Sequence
from dataclasses import asdict

from pagedkv.cli.parts import Options
from pagedkv.cli.report import Section, columns, verdict
from pagedkv.optimized.audit.aot import KernelAudit, audit
from pagedkv.optimized.audit.audit_table import compare, load
from pagedkv.optimized.audit.shipped import pairwise, shipped_launches

QUICK_TARGETS = ("sm_90",)


def run(options: Options) -> Section:
    """Compile, read the machine code, compare with the committed table; `quick` takes one target."""
    seen = set[str]()

    def tell(each: KernelAudit) -> None:
        if each.target not in seen:
            options.say(f"kernels: compiling for {each.target}")
            seen.add(each.target)

    work = [each for each in pairwise() if not options.quick or each[0] in QUICK_TARGETS]
    audits = audit(shipped_launches(work), tell)
    found = compare(audits, load(), whole=not options.quick)
    data = {
        "kernels": [{**asdict(each), "problems": each.problems()} for each in audits],
        "table": {"violations": found.violations, "notes": found.notes},
    }
    lines = [*report_lines(audits), *found.notes, *(f"VIOLATED {each}" for each in found.violations)]
    fit = not found.violations and not any(each.problems() for each in audits)
    return Section("kernels compiled", verdict(fit), tuple(lines), data)


def report_lines(audits: Sequence[KernelAudit]) -> list[str]:
    """A line a kernel, and a line a violation of the rules."""
    problems = ((each, problem) for each in audits for problem in each.problems())
    return most_lines(audits) + [
        f"VIOLATED {each.kernel} ({each.configuration}) on {each.target}: {problem}" for each, problem in problems
    ]


def most_lines(audits: Sequence[KernelAudit]) -> list[str]:
    """A line a kernel: the most that any of its configurations takes, by target."""
    targets = list(dict.fromkeys(each.target for each in audits))
    rows: list[tuple[object, ...]] = [
        ("kernel", "configurations", "registers", "spilled bytes", "shared bytes", "instructions")
    ]
    for kernel in dict.fromkeys(each.kernel for each in audits):
        of_kernel = [each for each in audits if each.kernel == kernel]
        most = [
            "/".join(
                str(max((getattr(each, cost) for each in of_kernel if each.target == target), default="-"))
                for target in targets
            )
            for cost in ("registers", "spill_bytes", "shared_bytes", "instructions")
        ]
        count = len({each.configuration for each in of_kernel})
        rows.append((kernel, count, *most))
    return [f"the most that any configuration takes, on {'/'.join(targets)}:", *columns(rows)]
