"""Part of `verify`: a real workload, every step of it held against the specification."""

import gc
import time
from dataclasses import asdict, replace

from pagedkv.cli.inputs import subject_factory
from pagedkv.cli.parts import Options
from pagedkv.cli.report import Section, columns, trace_line, write_failure
from pagedkv.conformance.counted import counted
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.failures.shrinking import Failure
from pagedkv.conformance.programs.plans import declared
from pagedkv.simulation import (
    POOL, Checked, ReservationMeasures, ServiceModel, WorkloadMeasures, bundled, compare_reservations, run as serve,
)  # fmt: skip

SECTION = "workload"
QUICK_REQUESTS = 40
RESERVED = (2_048, 4_096)
"""Maximum lengths of the baseline, beside the longest that occurs."""


def run(options: Options) -> Section:
    """The first 2,000 requests of the Azure 2023 conversation trace; `quick` takes fewer."""
    factory = subject_factory(options.subject)
    can = declared(factory)
    if not can.preempt:
        return Section(SECTION, "not run", ("workload not run: the subject does not declare preempt",))
    pool = replace(POOL, prefix_cache=can.prefix_cache, publish=can.publish, dedup=can.dedup)
    arrivals = bundled(QUICK_REQUESTS if options.quick else None)
    model, start = ServiceModel(), time.perf_counter()
    checker = Checked(factory, pool)

    def tell(done: int, simulated_s: float) -> None:
        options.say(f"workload: {done} of {counted(len(arrivals), 'requests')} done, {simulated_s:.0f} s of their time")

    gc.disable()  # nothing here is cyclic, and the log of a million operations is long to walk
    try:
        measures, spans = serve(arrivals, checker, pool, model, tell)
    except Violation as violation:
        note = f"{violation.law}: {violation.detail}"
        program = tuple(checker.differential.log)
        trace = write_failure(options.out, "workload", Failure(pool, program, violation))
        lines = (f"VIOLATED after {counted(len(program), 'operations')}: {note}", trace_line(trace))
        return Section(SECTION, "violated", lines, {"law": violation.law, "detail": violation.detail, "trace": trace})
    finally:
        gc.enable()
    checked_s = time.perf_counter() - start
    longest = max(arrival.final_length for arrival in arrivals)
    reservations = compare_reservations(arrivals, spans, POOL, (*RESERVED, longest), model)
    checks = {
        "operations": checker.operations,
        "operations_per_s": round(checker.operations / checked_s),
        "full_checks": checker.full_checks,
    }
    data = {
        "source": "AzureLLMInferenceTrace_conv.csv (2023), first requests, CC BY 4.0",
        "service_model": asdict(model),
        "num_blocks": POOL.num_blocks,
        "block_size": POOL.block_size,
        "checks": checks,
        "measures": measures.as_json(),
        "reservations": [asdict(reservation) for reservation in reservations],
    }
    return Section(SECTION, "holds", tuple(_lines(measures, reservations, model, checks)), data)


def _lines(
    m: WorkloadMeasures, reservations: tuple[ReservationMeasures, ...], model: ServiceModel, checks: dict[str, int]
) -> list[str]:
    tokens = f"{POOL.num_blocks:,} blocks of {POOL.block_size} = {POOL.num_blocks * POOL.block_size:,} tokens"
    ended = f"finished {m.finished:,}, unservable {len(m.unservable)}, steps {m.steps:,}"
    computed = f"appended {counted(m.appended_tokens, 'tokens')}, preemptions {m.preemptions:,}"
    queue = f"queue time p50 {m.queue_p50_s:.2f} s, p99 {m.queue_p99_s:.2f} s, longest queue {m.peak_waiting}"
    used = f"over time {m.mean_block_utilisation:.1%} of blocks, {m.mean_slot_utilisation:.1%} of slots"
    waste = f"waste in last blocks {m.mean_waste:.2%} of used slots, at most {counted(m.peak_waste_slots, 'slots')}"
    checked = f"checked {counted(checks['operations'], 'operations')}, {checks['operations_per_s']:,} a second"
    return [
        f"{counted(m.requests, 'requests')} of the Azure 2023 conversation trace (CC BY 4.0); pool {tokens}",
        str(model),
        f"{ended}, {computed} ({counted(m.recomputed_tokens, 'tokens')} recomputed)",
        f"active conversations: peak {m.peak_active}, mean {m.mean_active:.1f}; {queue}",
        f"used: at most {counted(m.peak_blocks, 'blocks')}, {used}",
        waste,
        f"blocks over time |{_sparkline([point.block_utilisation for point in m.series])}| 0 to {m.simulated_s:.0f} s",
        f"slots over time  |{_sparkline([point.slot_utilisation for point in m.series])}| (. is empty, 9 is full)",
        f"{checked}, and the whole state {counted(checks['full_checks'], 'times')}",
        "reserving the maximum length instead, on the same arrivals:",
        *columns(_reservation_rows(reservations)),
    ]


def _reservation_rows(reservations: tuple[ReservationMeasures, ...]) -> list[tuple[object, ...]]:
    head = ("reserved", "too long", "tokens reserved at peak", "fit in this pool", "queue p50 s", "p99 s", "slots used")
    rows: list[tuple[object, ...]] = [head]
    for r in reservations:
        queue, used = (_tenths(r.queue_p50_s), _tenths(r.queue_p99_s)), f"{r.mean_slot_utilisation:.1%}"
        rows.append((r.max_length, r.too_long, r.reserved_at_peak_tokens, r.fit_in_pool, *queue, used))
    return rows


def _tenths(seconds: float) -> float:
    return round(seconds, 1)


def _sparkline(values: list[float]) -> str:
    """A digit a value, tenths of full; `.` where it is less than a twentieth."""
    return "".join("." if value < 0.05 else str(min(9, int(value * 10))) for value in values)
