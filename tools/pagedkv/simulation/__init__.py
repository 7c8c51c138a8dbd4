"""A serving engine in the small: real arrivals, a stated service time, and a block manager that has to keep up.

`arrivals` reads a trace of requests, `checkers` are what the operations are run on, `workload` is the engine and
`measures` says what was seen.
"""

from pagedkv.simulation.arrivals import Arrival, bundled, read_arrivals
from pagedkv.simulation.checkers import Checked, Checker, Reservation, Unchecked
from pagedkv.simulation.measures import ReservationMeasures, WorkloadMeasures
from pagedkv.simulation.workload import Engine, ServiceModel, compare_reservations, run

__all__ = [
    "Arrival", "Checked", "Checker", "Engine", "Reservation", "ReservationMeasures", "ServiceModel", "Unchecked",
    "WorkloadMeasures", "bundled", "compare_reservations", "read_arrivals", "run",
]  # fmt: skip
