"""Coming and going: admit, free, preempt, resume.

Admit and a resume that recomputes are the same thing: match the token path against the prefix index, refer to the
blocks that are there, take the rest. At least one token is always left to compute, because the forward that follows
must produce a next token from something.
"""

from collections.abc import Sequence

from pagedkv.reference.arguments import integer, token_path
from pagedkv.reference.base import ManagerBase, Request
from pagedkv.spec.words import (
    HOLE,
    Copy,
    Misuse,
    Namespace,
    Ok,
    Outcome,
    PreemptMode,
    Reason,
    Refused,
    RequestId,
    Token,
    ceil_div,
    check_id,
)


class ResidencyOperations(ManagerBase):
    """The operations that make a request resident, or end it."""

    def admit(
        self, request: RequestId, tokens: Sequence[Token], namespace: Namespace = "", reserve: int | None = None
    ) -> Outcome:
        """A new request with its prompt; slots for its first `reserve` positions (None: all), and for what is cached.

        `Ok.cached_tokens` positions, whole blocks, were found in the index and are computed already.
        Refused: unservable, max_requests, in_flight, capacity.
        """
        check_id("request", request)
        check_id("namespace", namespace)
        if request in self.requests:
            raise Misuse("request", request, "an id that is not in use")
        path = token_path("tokens", tokens, least=1)
        reserve = len(path) if reserve is None else integer("reserve", reserve, 0, len(path))
        entry = Request(namespace, list(path))
        outcome = self._place(entry, reserve)
        if isinstance(outcome, Ok):
            self.requests[request] = entry
        return outcome

    def free(self, request: RequestId) -> Outcome:
        """The request is gone: blocks that only it owned are available at once (or once held no longer)."""
        entry = self._known(request)
        self._release_table(entry)
        self.free_swap += entry.saved
        del self.requests[request]
        return Ok()

    def preempt(self, request: RequestId, mode: PreemptMode = "recompute") -> Outcome:
        """The request gives up its blocks and keeps its tokens.

        With `mode="swap"` the blocks of its table, holes left out, are to be copied to swap space first, as
        `Ok.swapped` says. Refused: swap_space.
        """
        entry = self._resident(request)
        if not isinstance(mode, str) or mode not in ("recompute", "swap"):
            raise Misuse("mode", mode, "'recompute' or 'swap'")
        live, holes = [block for block in entry.table if block != HOLE], entry.holes
        if mode == "swap":
            if len(live) > len(self.free_swap):
                return Refused(Reason.SWAP_SPACE)
            entry.saved = [self.free_swap.pop() for _ in live]
        else:
            holes = entry.reserved = entry.computed = 0
        self._release_table(entry)
        entry.residency, entry.holes = mode, holes
        return Ok(swapped=tuple(map(Copy, live, entry.saved)))

    def resume(self, request: RequestId) -> Outcome:
        """Make a preempted request resident again.

        After "recompute", as if it were admitted with all its tokens. After "swap", in private blocks, to which what
        was saved is to be copied, as `Ok.swapped` says; nothing is cached, nothing enters the index.
        Refused: unservable (recompute), max_requests, in_flight, capacity.
        """
        entry = self._known(request)
        if entry.residency == "resident":
            raise Misuse("request", request, "a preempted request; this one is resident")
        if entry.residency == "recompute":
            return self._place(entry, entry.length)
        refusal = self._refusal(len(entry.saved), need=len(entry.saved), joins=True)
        if refusal is not None:
            return refusal
        fresh = [self.pool.take() for _ in entry.saved]
        swapped = tuple(map(Copy, entry.saved, fresh))
        self.free_swap += entry.saved
        entry.table, entry.residency, entry.saved = self._with_holes(fresh, entry.holes), "resident", []
        return Ok(swapped=swapped)

    def _place(self, entry: Request, reserve: int) -> Outcome:
        """Give a request without blocks its table: hits, then fresh blocks."""
        size, pool = self.config.block_size, self.pool
        hits = pool.index.match(entry.namespace, entry.tokens)[: (entry.length - 1) // size]
        cached = len(hits) * size
        reserved = max(reserve, cached)
        holes = self._dead_blocks(cached)
        live = hits[: self.sinks] + hits[self.sinks + holes :]
        used, held = sum(pool.references[block] > 0 for block in live), sum(block in pool.held for block in live)
        need = ceil_div(reserved, size) - holes - used - held
        refusal = self._refusal(ceil_div(entry.length, size) - holes, need, joins=True, held_hits=held)
        if refusal is not None:
            return refusal
        entry.prefixes = [pool.index.prefix_of[block] for block in hits]
        for block in live:  # first, so that no hit is evicted
            pool.share(block)
        fresh = [pool.take() for _ in range(ceil_div(reserved, size) - len(hits))]
        entry.table, entry.holes = self._with_holes(live + fresh, holes), holes
        entry.reserved, entry.computed, entry.residency = reserved, cached, "resident"
        self._publish_planned(entry, 0)
        return Ok(cached_tokens=cached)
