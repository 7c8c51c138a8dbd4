"""The rounding bound as a gate: |output - specification| <= B for every element, with nothing to tune.

The bound (`pagedkv.spec.bound`) follows from the stored values and from the rounding model that the subject declares.
rho is the largest ratio to it; a sound subject stays at or below 1, and rho says how much of the bound it uses. What
the bound cannot see is printed as its visibility; membership of single tokens is the probes' matter.
"""

from typing import Any

import numpy as np

from pagedkv.conformance.attention.bench import Bench, Broken, Law
from pagedkv.conformance.attention.cases import Case, contents
from pagedkv.conformance.attention.declared import rounding
from pagedkv.conformance.attention.placement import place
from pagedkv.spec.bound import Bound, paged_bound, rho


def bound(bench: Bench, case: Case) -> int:
    """Every element of the output within its bound. Counts elements' rows: (row, query head) pairs."""
    got = bench.run(case)  # first: if it raises, the oracle takes no time
    expected = _expected(bench, case)
    ratios = rho(got.out, expected.out, expected.out_bound)
    _note(bench, case, ratios)
    if case.style == "normal" and expected.seen:
        bench.visibility = min(expected.visibility, 1.0 if bench.visibility is None else bench.visibility)
    _gate("output", got.out, expected.out, expected.out_bound, ratios)
    return int(np.prod(ratios.shape[:2]))


def lse_bound(bench: Bench, case: Case) -> int:
    """Every log-sum-exp (natural logarithm, the sink in it) within its bound."""
    got = bench.run(case)
    expected = _expected(bench, case)
    ratios = rho(got.lse, expected.lse, expected.lse_bound)
    _note(bench, case, ratios)
    _gate("lse", got.lse, expected.lse, expected.lse_bound, ratios)
    return int(ratios.size)


def empty_rows(bench: Bench, case: Case) -> int:
    """A row that sees nothing gives output 0 and, where it is returned, LSE -inf: no NaN, no leftover."""
    got, row, checked = bench.run(case), 0, 0
    for request, rows in enumerate(case.query_lens):
        for index in range(rows):
            if len(case.sees(request, index)) == 0:
                where = f"row {index} of request {request} sees nothing, yet its"
                if np.any(got.out[row] != 0):
                    raise Broken(f"{where} output is {got.out[row].ravel()[:4]}")
                if got.lse is not None and not np.all(np.isneginf(got.lse[row])):
                    raise Broken(f"{where} lse is {got.lse[row].tolist()}, not -inf")
                checked += 1
            row += 1
    return checked


BOUNDS: dict[str, Law] = {"bound": bound, "lse_bound": lse_bound, "empty_rows": empty_rows}
"""Every numerical law by name."""


def _expected(bench: Bench, case: Case) -> Bound:
    launch = place(case, contents(case))
    key = (case, rounding(bench.subject, launch))
    if key not in bench.bounds:
        bench.bounds[key] = paged_bound(launch, key[1])
    return bench.bounds[key]


def _note(bench: Bench, case: Case, ratios: Any) -> None:
    for shape, of_row in zip(case.shapes(), ratios, strict=True):
        bench.rhos[shape] = max(bench.rhos.get(shape, 0.0), float(of_row.max()))


def _gate(name: str, got: Any, reference: Any, within: Any, ratios: Any) -> None:
    if not np.all(ratios <= 1.0):
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(ratios)), ratios.shape))
        raise Broken(
            f"{name} at {at} is {got[at]!r}, the specification says {reference[at]:.9g}, and may be off by"
            f" {within[at]:.3g}: rho {ratios[at]:.3g}"
        )
