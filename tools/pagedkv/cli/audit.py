"""Compile the Triton kernels for GPUs that need not be there, and hold the machine code against rules and a table.

Without --all few configurations are compiled that have every pair of values. Rules: no spill, no more shared memory
than there is, KV loads of 16 bytes where the layout allows them, addresses computed in 64 bits. The committed table is
compared exactly. Exit code 1 at a violation.

--example names a function of one argument, the target, that returns the launches of a stranger's kernel, each a
pagedkv.optimized.launch.Launch. With --kernel, which names the kernel, it returns (arguments, constants) instead.
"""

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pagedkv.cli.inputs import BadInput, aside, named, positive, print_json, progress
from pagedkv.cli.report import columns, verdict
from pagedkv.conformance.counted import counted

if TYPE_CHECKING:  # torch and Triton are imported when the verb runs: the command itself must not need them
    from pagedkv.optimized.audit.aot import KernelAudit
    from pagedkv.optimized.audit.shipped import Configuration, Work
    from pagedkv.optimized.launch import Launch

HELP = "compile the kernels for GPUs that need not be there"
TARGETS: Final = ("sm_80", "sm_90", "sm_100", "gfx942")
LOT: Final = 16
"""Compilations that a process gets at a time."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("--all", action="store_true", help="every configuration: about three hours of one core")
    parser.add_argument("--target", action="append", choices=TARGETS, help="default: all; may be given more than once")
    parser.add_argument("--only", action="append", metavar="KERNEL", help="one kernel; may be given more than once")
    parser.add_argument("--example", metavar="module:function", help="the launches of a stranger's kernel")
    parser.add_argument("--kernel", metavar="module:function", help="that kernel, if the example gives arguments only")
    parser.add_argument("--table", metavar="FILE", type=Path, help="default: docs/kernels/audit.json of the checkout")
    parser.add_argument("--update", action="store_true", help="write the table anew, and the page beside it")
    parser.add_argument("--jobs", type=positive, default=1, metavar="N", help="processes (default: 1)")
    parser.add_argument("--rows", action="store_true", help="a line a configuration")
    parser.add_argument("--json", action="store_true", help="the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """The verb."""
    from pagedkv.optimized.audit import audit_page, audit_table  # noqa: PLC0415  # as above

    partial = bool(arguments.target or arguments.only or arguments.example or arguments.all)
    if arguments.update and partial:
        raise BadInput("--update writes the whole table: it goes with none of --all, --target, --only, --example")
    if arguments.kernel and not arguments.example:
        raise BadInput("--kernel needs --example, which gives its arguments")
    if arguments.example and (arguments.only or arguments.table or arguments.all):
        raise BadInput("--example is held against the rules alone: it goes with none of --only, --table, --all")
    path, notes = arguments.table or audit_table.TABLE, list[str]()
    compares = not (arguments.example or arguments.update)
    committed = table_in(path, arguments.table is not None) if compares else None
    audits = list(strangers(arguments) if arguments.example else own(arguments))
    violations = [f"{each.configuration} on {each.target}: {what}" for each in audits for what in each.problems()]
    if arguments.update and violations:  # a table is no excuse for a kernel that is unfit to ship
        notes.append(f"{path} is left as it is")
    elif arguments.update:
        table = audit_table.document(audits)
        audit_table.save(table, path)
        audit_page.rewrite(path.with_suffix(".md"), table)
    elif compares:
        found = audit_table.compare(audits, committed, whole=not partial)
        violations, notes = violations + found.violations, found.notes
    show(arguments, audits, violations, notes)
    return int(bool(violations))


def table_in(path: Path, must_exist: bool) -> dict[str, Any] | None:
    """The table to compare with; None where the package was installed without one, and none was asked for."""
    from pagedkv.optimized.audit import audit_table  # noqa: PLC0415  # as above

    try:
        table = audit_table.load(path)
    except (OSError, ValueError) as error:
        raise BadInput(f"--table {path}: {error}") from error
    if table is None and must_exist:
        raise BadInput(f"--table {path}: there is no such file; --update writes it")
    return table


def own(arguments: argparse.Namespace) -> Iterator["KernelAudit"]:
    """Audits of the kernels that we ship."""
    from pagedkv.optimized.audit.shipped import configurations, pairwise  # noqa: PLC0415  # as above

    work = [(t, each) for t in TARGETS for each in configurations()] if arguments.all else pairwise()
    names = {kernel_name(each) for _, each in work}
    for name in arguments.only or ():
        if name not in names:
            raise BadInput(f"--only {name!r}: there is no such kernel, but {', '.join(sorted(names))}")
    work = [
        (target, each)
        for target, each in work
        if target in (arguments.target or TARGETS) and kernel_name(each) in (arguments.only or names)
    ]
    lots = [work[i : i + LOT] for i in range(0, len(work), LOT)]
    progress(f"audit: {counted(len(work), 'compilations')}")
    if arguments.jobs == 1:
        found = map(compiled, lots)
        yield from reported(found, len(work))
        return
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as processes:
        yield from reported(processes.map(compiled, lots), len(work))


def kernel_name(configuration: "Configuration") -> str:
    """The first word of what a configuration says of its kernel."""
    return configuration.kernel.split()[0]


def compiled(work: list["Work"]) -> list["KernelAudit"]:
    """The audits of a lot; also in a process of its own."""
    from pagedkv.optimized.audit.aot import audit  # noqa: PLC0415  # as above
    from pagedkv.optimized.audit.shipped import shipped_launches  # noqa: PLC0415  # as above

    return audit(shipped_launches(work))


def reported(lots: Iterator[list["KernelAudit"]], total: int) -> Iterator["KernelAudit"]:
    """All audits, with a line of progress a lot."""
    done = 0
    for lot in lots:
        done += len(lot)
        progress(f"audit: {done:,} of {total:,}")
        for each in lot:
            for problem in each.problems():
                progress(f"audit: {each.configuration} on {each.target}: {problem}")
        yield from lot


def strangers(arguments: argparse.Namespace) -> list["KernelAudit"]:
    """Audits of the launches that somebody's function gives."""
    from pagedkv.optimized.audit.aot import audit  # noqa: PLC0415  # as above

    example = named(arguments.example, "--example")
    kernel = named(arguments.kernel, "--kernel") if arguments.kernel else None
    work = []
    for target in arguments.target or TARGETS:
        with aside():
            found = example(target)
        work += [(target, launch) for launch in launches(found, kernel)]
    with aside():
        return audit(work, lambda each: progress(f"audit: {each.configuration} on {each.target}"))


def launches(found: Any, kernel: Any) -> list["Launch"]:
    """What an example returned, as launches."""
    from pagedkv.optimized.launch import Launch  # noqa: PLC0415  # as above

    if kernel is not None:
        if not (isinstance(found, tuple) and len(found) == 2):
            raise BadInput("with --kernel the example returns (arguments, constants)")
        name = getattr(kernel, "__name__", "kernel")
        return [Launch(name, name, kernel, (1,), tuple(found[0]), dict(found[1]))]
    several = [found] if isinstance(found, Launch) else list(found)
    if not several or not all(isinstance(each, Launch) for each in several):
        raise BadInput("the example returns a pagedkv.optimized.launch.Launch or several, or --kernel is missing")
    return several


def show(arguments: argparse.Namespace, audits: list["KernelAudit"], violations: list[str], notes: list[str]) -> None:
    """The report, on stdout."""
    from pagedkv.cli.parts.kernels import most_lines  # noqa: PLC0415  # as above

    if arguments.json:
        rows = [{**asdict(each), "problems": each.problems()} for each in audits]
        print_json({"holds": not violations, "violations": violations, "notes": notes, "kernels": rows})
        return
    print("\n".join(row_lines(audits) if arguments.rows or arguments.example else most_lines(audits)))
    told = [*(f"note: {note}" for note in notes), *(f"VIOLATED {each}" for each in violations)]
    print("\n".join([*told, f"{verdict(not violations).upper()}: {len(audits):,} compiled"]))


def row_lines(audits: list["KernelAudit"]) -> list[str]:
    """A line an audit."""
    rows: list[tuple[object, ...]] = [
        ("configuration", "target", "registers", "spilled", "shared", "occupancy", "KV bits", "instructions", "matrix")
    ]
    for each in audits:
        bits = "-" if each.kv_load_bits is None else "..".join(map(str, dict.fromkeys(each.kv_load_bits)))
        cost = each.registers, each.spill_bytes, each.shared_bytes, f"{each.occupancy:.0%}", bits, each.instructions
        rows.append((each.configuration, each.target, *cost, ", ".join(each.matrix) or "-"))
    return columns(rows)
