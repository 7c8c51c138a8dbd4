"""The baseline on the same arrivals: every conversation reserves the maximum length for as long as it is served."""

from collections.abc import Sequence

from pagedkv.reference.baseline import ContiguousReservation
from pagedkv.simulation.arrivals import Arrival
from pagedkv.simulation.measures import ReservationMeasures, Span, peak_served
from pagedkv.simulation.service import ServiceModel
from pagedkv.simulation.workload import run
from pagedkv.spec import Admit, Batch, Config, Free, Ok, Operation, Outcome, Reason, Refused


class Reservation:
    """Reserving the maximum length for every request, in the same pool: what is compared with paging.

    Room is decided when a request comes and does not depend on its text, so the baseline is asked with one token, and
    a request that would outgrow its room is unservable from the start. `final_length` (tokens) by request.
    """

    def __init__(self, config: Config, max_length: int, final_length: dict[str, int]) -> None:
        self.config, self.final_length = config, final_length
        self.manager = ContiguousReservation(config.num_blocks * config.block_size, max_length)

    def apply(self, operation: Operation) -> tuple[Outcome, ...]:
        match operation:
            case Admit(request):
                fits = self.final_length[str(request)] <= self.manager.max_length
                return (self.manager.admit(request, (0,)) if fits else Refused(Reason.UNSERVABLE),)
            case Batch(rows):
                if isinstance(rows[0], Free):
                    for row in rows:
                        self.manager.free(row.request)
                return (Ok(),) * len(rows)
            case _:
                raise TypeError(f"a reservation never needs {operation}")

    def available_blocks(self) -> int:
        reserved = self.manager.num_active * self.manager.max_length
        return (self.manager.capacity_tokens - reserved) // self.config.block_size

    def step_ended(self) -> None:
        pass

    def finish(self) -> None:
        pass


def compare_reservations(
    arrivals: Sequence[Arrival],
    served: Sequence[Span],
    config: Config,
    max_lengths: Sequence[int],
    model: ServiceModel | None = None,
) -> tuple[ReservationMeasures, ...]:
    """The same arrivals and service times, where every conversation reserves one of `max_lengths`.

    `served`: what paging made of them.
    """
    results = []
    for max_length in max_lengths:
        final_length = {arrival.name: arrival.final_length for arrival in arrivals}
        measures, _ = run(arrivals, Reservation(config, max_length, final_length), config, model)
        results.append(
            ReservationMeasures(
                max_length=max_length,
                too_long=sum(length > max_length for length in final_length.values()),
                reserved_at_peak_tokens=peak_served([s for s in served if s.length <= max_length]) * max_length,
                fit_in_pool=config.num_blocks * config.block_size // max_length,
                peak_active=measures.peak_active,
                queue_p50_s=measures.queue_p50_s,
                queue_p99_s=measures.queue_p99_s,
                mean_slot_utilisation=measures.mean_slot_utilisation,
                simulated_s=measures.simulated_s,
            )
        )
    return tuple(results)
