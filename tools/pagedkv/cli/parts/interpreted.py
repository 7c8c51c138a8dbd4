"""Part of `verify`: the Triton kernels without a GPU, interpreted on tiny shapes.

Once with operands upcast to float32, and formats of 16 bits also as stored: weights are rounded before they meet V.

The programs of every launch run in a shuffled order, and what each touches is recorded: on a GPU they run in any order
and at once, so no program may touch what another one writes.
"""

from pagedkv.cli.parts import Options
from pagedkv.cli.parts.attention_report import attention_section
from pagedkv.cli.report import Section, merged, verdict
from pagedkv.conformance.attention import Configuration
from pagedkv.conformance.attention.plan import configurations
from pagedkv.conformance.counted import counted
from pagedkv.optimized.attention.subject import InterpretedTritonAttention
from pagedkv.optimized.audit.access_log import AccessLog
from pagedkv.optimized.audit.interpret import ordered, recording, shuffled

UPCAST, AS_STORED = "interpreted, operands upcast", "interpreted, as stored"

SHOWN = 5
"""Conflicts that are printed."""


def run(options: Options) -> Section:
    """Indexing, masks, poison, probes and order; how a device rounds inside a product is not seen here."""
    with ordered(shuffled(options.seed)), recording() as log:
        held = [attention_section(InterpretedTritonAttention(), UPCAST, "tiny", options)]
        if not options.quick:
            held.append(
                attention_section(InterpretedTritonAttention(upcast=False), AS_STORED, "tiny", options, narrow())
            )
    return merged("attention", [*held, order_section(log)])


def narrow() -> list[Configuration]:
    """The configurations whose operands an upcast changes."""
    planned = configurations(InterpretedTritonAttention.capabilities, "tiny")
    return [configuration for configuration in planned if configuration.dtype != "float32"]


def order_section(log: AccessLog) -> Section:
    """Whether the order of the programs of any recorded launch can be seen in its results."""
    conflicts = log.conflicts()
    programs = sum(len(launch.programs) for launch in log.launches)
    of_all = f"{counted(programs, 'programs')} of {counted(len(log.launches), 'launches')}"
    line = f"order: {of_all} shuffled, {counted(len(conflicts), 'pairs')} in conflict"
    shown = [
        f"VIOLATED order of programs in {c.kernel}: {c.access} by {c.program} and {c.other_access} by {c.other}"
        f" of byte {c.offset} of {c.argument}"
        for c in conflicts[:SHOWN]
    ]
    data = {"launches": len(log.launches), "programs": programs, "conflicts": [c._asdict() for c in conflicts[:SHOWN]]}
    return Section("attention", verdict(not conflicts), (line, *shown), data)
