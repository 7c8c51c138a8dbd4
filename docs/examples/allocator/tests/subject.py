"""PagePool in the words of pagedkv: all that it takes to hold it against the specification."""

from collections.abc import Sequence
from copy import deepcopy

from pagedkv.spec import Config, Copy, Misuse, Ok, Outcome, Reason, Refused, RequestId
from pagedkv.spec.subject import Capabilities, Lengths, Snapshot

from pagepool import OutOfPages, PagePool


class Subject:
    """Has a pool, knows which request has which handle, and checks what the pool trusts its caller with."""

    capabilities = Capabilities(fork=True, truncate=True)

    def __init__(self, config: Config) -> None:
        self.config = config
        self.pool = PagePool(config.num_blocks, config.block_size)
        self.handles: dict[RequestId, int] = {}
        self.computed: dict[
            RequestId, int
        ] = {}  # which tokens have been computed is the engine's to know, not the pool's

    def admit(
        self, request: RequestId, tokens: Sequence[int], namespace: str = "", reserve: int | None = None
    ) -> Outcome:
        self._new(request)
        self._check_tokens(tokens)
        if refused := self._too_long(len(tokens)) or self._too_many():
            return refused
        try:
            self.handles[request] = self.pool.open(len(tokens))
        except OutOfPages:
            return Refused(Reason.CAPACITY)
        self.computed[request] = 0
        return Ok()

    def append(self, request: RequestId, tokens: Sequence[int]) -> Outcome:
        start = self._length(request)
        self._check_tokens(tokens)
        if refused := self._too_long(start + len(tokens)):
            return refused
        try:
            copy = self.pool.extend(self.handles[request], len(tokens))
        except OutOfPages:
            return Refused(Reason.CAPACITY)
        pages, size = self._table(request), self.config.block_size
        slots = tuple(pages[p // size] * size + p % size for p in range(start, start + len(tokens)))
        return Ok(slots=slots, copies=(Copy(*copy),) if copy else ())

    def commit(self, request: RequestId, computed: int) -> Outcome:
        if not self._computed(request) <= computed <= self._length(request):
            raise Misuse("computed", computed, "neither back nor past the end")
        self.computed[request] = computed
        return Ok()

    def fork(self, parent: RequestId, child: RequestId) -> Outcome:
        if self._computed(parent) != self._length(parent):
            raise Misuse("parent", parent, "a request that is computed to its end")
        self._new(child)
        if refused := self._too_many():
            return refused
        self.handles[child] = self.pool.share(self.handles[parent])
        self.computed[child] = self.computed[parent]
        return Ok()

    def truncate(self, request: RequestId, length: int) -> Outcome:
        if not 1 <= length <= self._length(request):
            raise Misuse("length", length, "1 to the length of the request")
        self.pool.rewind(self.handles[request], length)
        self.computed[request] = min(self.computed[request], length)
        return Ok()

    def free(self, request: RequestId) -> Outcome:
        self._length(request)
        self.pool.close(self.handles.pop(request))
        del self.computed[request]
        return Ok()

    def observe(self, requests: Sequence[RequestId] | None = None) -> Snapshot:
        known = [r for r in self.handles if requests is None or r in requests]
        return Snapshot(
            tables={r: self._table(r) for r in known},
            lengths={r: Lengths(self._length(r), self._length(r), self.computed[r]) for r in known},
            available_blocks=len(self.pool.spare),
        )

    def copy(self) -> "Subject":
        return deepcopy(self)  # not needed; the exhaustive slices are four times as fast with it

    def _table(self, request: RequestId) -> tuple[int, ...]:
        return tuple(self.pool.sequences[self.handles[request]].pages)

    def _length(self, request: RequestId) -> int:
        if request not in self.handles:
            raise Misuse("request", request, "a known request")
        return self.pool.sequences[self.handles[request]].length

    def _computed(self, request: RequestId) -> int:
        self._length(request)
        return self.computed[request]

    def _new(self, request: RequestId) -> None:
        if request in self.handles:
            raise Misuse("request", request, "a new request")

    def _check_tokens(self, tokens: Sequence[int]) -> None:
        if not tokens or min(tokens) < 0:
            raise Misuse("tokens", tokens, "at least one token, each >= 0")

    def _too_long(self, length: int) -> Refused | None:
        fits = length <= self.config.num_blocks * self.config.block_size
        return None if fits else Refused(Reason.UNSERVABLE)

    def _too_many(self) -> Refused | None:
        most = self.config.max_requests
        return Refused(Reason.MAX_REQUESTS) if most is not None and len(self.handles) >= most else None
