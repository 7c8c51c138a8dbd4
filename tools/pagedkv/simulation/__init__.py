"""A serving engine in the small: real arrivals, a stated service time, and a block manager that has to keep up.

`arrivals` reads a trace of requests, `service` states what a step costs, `checkers` are what the operations are run on,
`workload` is the engine, `measures` says what was seen, and `reservations` serves the same arrivals without paging.
"""

from pagedkv.simulation.arrivals import Arrival, bundled, read_arrivals
from pagedkv.simulation.checkers import Checked, Checker, Unchecked
from pagedkv.simulation.measures import ReservationMeasures, Span, WorkloadMeasures
from pagedkv.simulation.reservations import Reservation, compare_reservations
from pagedkv.simulation.service import POOL, ServiceModel
from pagedkv.simulation.workload import Engine, run

__all__ = [
    "POOL", "Arrival", "Checked", "Checker", "Engine", "Reservation", "ReservationMeasures", "ServiceModel", "Span",
    "Unchecked", "WorkloadMeasures", "bundled", "compare_reservations", "read_arrivals", "run",
]  # fmt: skip
