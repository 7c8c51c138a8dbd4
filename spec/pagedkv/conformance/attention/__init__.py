"""Attention held against the specification: bitwise relations, exact probes, the rounding bound, the write path.

`run(subject, seed=0, size="full")` holds any `AttentionSubject` to every law that its capabilities call for, and
`check_law(subject, law, case)` reproduces one failure of its report. `with_positions` is the usual `fit` of a subject.
"""

from pagedkv.conformance.attention.cases import Case, with_positions
from pagedkv.conformance.attention.held import check_law
from pagedkv.conformance.attention.plan import Configuration
from pagedkv.conformance.attention.report import AttentionReport, ConfigurationReport, Count, Failure
from pagedkv.conformance.attention.runner import planned_checks, run

__all__ = [
    "AttentionReport", "Case", "Configuration", "ConfigurationReport", "Count", "Failure", "check_law",
    "planned_checks", "run", "with_positions",
]  # fmt: skip
