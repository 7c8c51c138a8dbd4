"""Part of `verify`: the Triton kernels without a GPU, interpreted on tiny shapes with operands upcast to float32.

The programs of every launch run in a shuffled order, and what each touches is recorded: on a GPU they run in any order
and at once, so no program may touch what another one writes.
"""

from pagedkv.cli.parts import Options
from pagedkv.cli.parts.attention_report import attention_section
from pagedkv.cli.report import Section, merged, verdict
from pagedkv.optimized.audit.access_log import AccessLog
from pagedkv.optimized.attention.subject import InterpretedTritonAttention
from pagedkv.optimized.audit.interpret import ordered, recording, shuffled

SHOWN = 5
"""Conflicts that are printed."""


def run(options: Options) -> Section:
    """Indexing, masks, poison, probes and order; what a device rounds is not seen here."""
    with ordered(shuffled(options.seed)), recording() as log:
        held = attention_section(InterpretedTritonAttention(), "interpreted, upcast", "tiny", options)
    return merged("attention", [held, order_section(log)])


def order_section(log: AccessLog) -> Section:
    """Whether the order of the programs of any recorded launch can be seen in its results."""
    conflicts = log.conflicts()
    programs = sum(len(launch.programs) for launch in log.launches)
    line = (
        f"order: {programs:,} programs of {len(log.launches):,} launches shuffled, {len(conflicts)} pairs in conflict"
    )
    shown = [
        f"VIOLATED order of programs in {c.kernel}: {c.access} by {c.program} and {c.other_access} by {c.other}"
        f" of byte {c.offset} of {c.argument}"
        for c in conflicts[:SHOWN]
    ]
    data = {"launches": len(log.launches), "programs": programs, "conflicts": [c._asdict() for c in conflicts[:SHOWN]]}
    return Section("attention", verdict(not conflicts), (line, *shown), data)
