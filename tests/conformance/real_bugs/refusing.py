"""Bugs of refusal: what fits is turned away, what does not is let in, and a refusal leaves something behind."""

from typing import Final

from tests.conformance.illegal_tool import mutant
from tests.conformance.real_bugs.records import CRASH, Record

_REFUSED: Final = "refused changes nothing"
_FORBIDDEN: Final = "refusal is forbidden when need <= available"

REFUSING: Final = (
    Record(
        "B012",
        mutant(
            "checked_after_taking",
            "refused changes nothing",
            "growth",
            (
                "        refusal = self._refusal(blocks - entry.holes, need=fresh + len(shared))\n",
                """        taken = [pool.take() for _ in range(min(fresh, pool.available))]
        refusal = self._refusal(blocks - entry.holes, need=fresh - len(taken) + len(shared))
""",
            ),
            ("entry.table.extend([pool.take() for _ in range(fresh)])", "entry.table.extend(taken)"),
        ),
        _REFUSED,
        5,
        nearest="what there is of blocks is taken, then the request is refused",
    ),
    Record(
        "B110",
        mutant(
            "refused_with_its_hits_in_hand",
            "refused changes nothing",
            "residency",
            (
                "        refusal = self._refusal(ceil_div(entry.length, size) - holes, need,",
                """        need -= sum(pool.references[block] == 0 and block not in pool.held for block in live)
        for block in live:  # received; that the rest does not fit is found out later
            pool.share(block)
        refusal = self._refusal(ceil_div(entry.length, size) - holes, need,""",
            ),
            ("        for block in live:  # first, so that no hit is evicted\n            pool.share(block)\n", ""),
        ),
        _REFUSED,
        7,
        nearest="the blocks received are here those that the prompt hits",
    ),
    Record(
        "B122",
        mutant(
            "hits_of_others_counted_as_capacity",
            "hits that others refer to are not needed",
            "residency",
            ("sum(pool.references[block] > 0 for block in live)", "0"),
        ),
        _FORBIDDEN,
        6,
        nearest="evicting a parent before its children, the other half of the report, is legal and only costs hits",
    ),
    Record(
        "B124",
        mutant(
            "room_made_before_it_is_known_to_suffice",
            "refused changes nothing",
            "base",
            (
                "        if need > self.pool.available:\n",
                """        while need > len(self.pool.free) and self.pool.index.idle:
            self.pool.forget(self.pool.choose_victim(self.pool.held))
        if need > self.pool.available:
""",
            ),
        ),
        "entries go only by eviction",
        6,
    ),
    Record(
        "B153",
        mutant(
            "rows_of_a_fixed_width",
            "a table with holes may be longer than the pool",
            "growth",
            (
                "        refusal = self._refusal(blocks - entry.holes, need=fresh + len(shared))\n",
                """        if blocks > pool.num_blocks:
            raise IndexError(f"index {blocks - 1} is out of bounds for a row of {pool.num_blocks}")
        refusal = self._refusal(blocks - entry.holes, need=fresh + len(shared))
""",
            ),
        ),
        CRASH,
        6,
    ),
    Record(
        "B175",
        mutant(
            "rows_of_other_lengths_preempted",
            "each row of a batch is judged by what it needs",
            "manager",
            ("HOLE, Block, Misuse, Ok, Outcome,", "HOLE, Block, Misuse, Ok, Outcome, Reason, Refused,"),
            (
                "        return [run(self, row) for row in rows]\n",
                """        if run is not _RUN[Append]:
            return [run(self, row) for row in rows]
        lengths = {row.request: self.requests[row.request].length for row in rows}
        others = {request for request in lengths if lengths[request] != lengths[rows[0].request]}
        for request in others:
            self.preempt(request)
        return [Refused(Reason.CAPACITY) if row.request in others else run(self, row) for row in rows]
""",
            ),
        ),
        _FORBIDDEN,
        5,
        nearest="whom to run is a scheduler's affair; here the rows of a batch are sorted, and one length goes on",
    ),
    Record(
        "B194",
        mutant(
            "too_long_and_dropped_in_silence",
            "what never fits is refused as unservable",
            "residency",
            (
                "        if isinstance(outcome, Ok):\n            self.requests",
                """        if outcome == Refused(Reason.UNSERVABLE):
            return Ok()
        if isinstance(outcome, Ok):
            self.requests""",
            ),
        ),
        "refusal is required: unservable",
        2,
    ),
    Record(
        "B199",
        mutant(
            "as_many_places_as_may_run",
            "max_requests limits who is resident, not who is known",
            "residency",
            (
                "        entry = Request(namespace, list(path))\n",
                """        if self.config.max_requests is not None and len(self.requests) >= self.config.max_requests:
            raise IndexError(f"index {len(self.requests)} is out of bounds")
        entry = Request(namespace, list(path))
""",
            ),
        ),
        CRASH,
        6,
    ),
    Record(
        "B208",
        mutant(
            "profiled_size_instead_of_the_real_one",
            "unservable is judged by the pool that there is",
            "base",
            ("if blocks > self.pool.num_blocks:", "if blocks > 1 << 20:  # what profiling found, not what was set"),
        ),
        "the reason of a refusal",
        2,
    ),
    Record(
        "B240",
        mutant(
            "estimate_taken_for_an_answer",
            "a hit is what the index has at admission",
            "manager",
            (
                "    def begin_step(",
                """    estimates: dict[Any, int] = {}

    def lookup(self, tokens: Any, namespace: Any = "") -> Any:
        found = super().lookup(tokens, namespace)
        self.estimates = {**self.estimates, (namespace, tuple(tokens)): found.cached_tokens}
        return found

    def admit(self, request: Any, tokens: Any, namespace: Any = "", reserve: Any = None) -> Any:
        outcome = super().admit(request, tokens, namespace, reserve)
        estimate = self.estimates.get((namespace, tuple(tokens)))
        return outcome if estimate is None else Ok(cached_tokens=estimate)

    def begin_step(""",
            ),
        ),
        "hits are the longest published prefix, with one token left to compute",
        7,
    ),
)
