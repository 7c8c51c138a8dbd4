"""What happens to a resident request: reserve, append, commit, fork, truncate.

Copy-on-write is decided here and only here, in `_grow`: whoever is about to write into a block that has another owner
gets a copy of it first (Kwon et al., SOSP 2023, §4.4).
"""

from collections.abc import Sequence

from pagedkv.reference.arguments import integer, token_path
from pagedkv.reference.base import ManagerBase, Request
from pagedkv.spec.words import HOLE, Copy, Misuse, Ok, Outcome, Reason, Refused, RequestId, Token, ceil_div, check_id


class GrowthOperations(ManagerBase):
    """The operations that lengthen, compute, copy and shorten a resident request."""

    def reserve(self, request: RequestId, length: int) -> Outcome:
        """Slots up to position `length - 1`, which may lie past the known tokens. Never shrinks.

        Refused: unservable, in_flight, capacity.
        """
        entry = self._resident(request)
        integer("length", length, 1)
        return self._grow(entry, (), min(entry.reserved, entry.length), length)

    def append(self, request: RequestId, tokens: Sequence[Token]) -> Outcome:
        """The request goes on by at least one token; `Ok.slots` are those of the new positions.

        Refused: unservable, in_flight, capacity.
        """
        entry = self._resident(request)
        path = token_path("tokens", tokens, least=1)
        return self._grow(entry, path, entry.length, entry.length + len(path))

    def commit(self, request: RequestId, computed: int) -> Outcome:
        """The KV of the positions below `computed` is written: full blocks enter the index, dead ones are released."""
        entry = self._resident(request)
        integer("computed", computed, entry.computed, min(entry.reserved, entry.length))
        old, entry.computed = entry.computed, computed
        remapped = self._publish_computed(entry, old) if self.config.prefix_cache else []
        dead = self._dead_blocks(computed)
        died = range(self.sinks + entry.holes, self.sinks + dead)
        for i in reversed(died):  # the last first: children are evicted before parents
            self.pool.release(entry.table[i])
            entry.table[i] = HOLE
        entry.holes = max(entry.holes, dead)
        return Ok(remapped=tuple(remapped))

    def fork(self, parent: RequestId, child: RequestId) -> Outcome:
        """The child is the parent's twin in the same blocks, the partly filled last one too. Takes no block.

        Refused: max_requests.
        """
        entry = self._resident(parent, "parent")
        check_id("child", child)
        if child in self.requests:
            raise Misuse("child", child, "an id that is not in use")
        if entry.computed != entry.length:
            raise Misuse("parent", parent, f"a request that is computed whole; {entry.computed} of {entry.length} are")
        if self._is_full():
            return Refused(Reason.MAX_REQUESTS)
        twin = entry.copy()
        twin.reserved = twin.length  # the parent's lookahead is its own
        del twin.table[ceil_div(twin.length, self.config.block_size) :]
        for block in twin.table:
            if block != HOLE:
                self.pool.share(block)
        self.requests[child] = twin
        return Ok()

    def truncate(self, request: RequestId, length: int) -> Outcome:
        """Roll back to the first `length` tokens; blocks past their end are released, lookahead too.

        Refused: released, if the window of a query at the new end would begin before the end of what it has let go.
        """
        entry = self._resident(request)
        integer("length", length, 1, entry.length)
        size, window = self.config.block_size, self.config.sliding_window
        computed = min(entry.computed, length)
        if window is not None and entry.holes > max(0, (computed - window + 1) // size - self.sinks):
            return Refused(Reason.RELEASED)
        del entry.tokens[length:]
        del entry.prefixes[length // size :]
        entry.computed, entry.reserved = computed, min(entry.reserved, length)
        self._release_table(entry, keep=ceil_div(entry.reserved, size))
        if entry.reserved % size and entry.table[-1] in self.pool.index.unwritten:
            self.pool.forget(entry.table[-1])  # the write that the entry promises may not come
        return Ok()

    def _grow(self, entry: Request, tokens: Sequence[Token], first: int, end: int) -> Outcome:
        """Lengthen by `tokens` and make the positions up to `end` writable; answer the slots from `first` on."""
        size, pool = self.config.block_size, self.pool
        start = min(entry.reserved, entry.length)
        if end <= start:
            return Ok()
        blocks = ceil_div(end, size)
        fresh = max(0, blocks - len(entry.table))
        rewritten = range(start // size, min(len(entry.table), blocks))
        shared = [i for i in rewritten if pool.references[entry.table[i]] > 1]
        refusal = self._refusal(blocks - entry.holes, need=fresh + len(shared))
        if refusal is not None:
            return refusal
        for i in rewritten:
            if i not in shared:
                pool.forget(entry.table[i])  # what the entry says will be true no longer
        copies = []
        for i in shared:
            copy = Copy(entry.table[i], pool.take())
            entry.table[i] = copy.destination
            pool.release(copy.source)
            copies.append(copy)
        entry.table.extend([pool.take() for _ in range(fresh)])
        entry.tokens.extend(tokens)
        entry.reserved = max(entry.reserved, end)
        self._publish_planned(entry, start)
        return Ok(slots=entry.slots(first, end, size), copies=tuple(copies))

    def _publish_computed(self, entry: Request, old: int) -> list[Copy]:
        """Enter the full blocks computed since `old`, or, with `dedup`, use the block that is there already."""
        size = self.config.block_size
        remapped = []
        for i in range(old // size, entry.computed // size):
            block = entry.table[i]
            self.pool.index.unwritten.discard(block)
            if self.config.publish == "schedule":
                continue
            present = self._publish(entry, i)
            if present != block and self.config.dedup and not self.pool.steps:  # a step may still read the old table
                remapped.append(Copy(block, present))
                entry.table[i] = present
                self.pool.share(present)
                self.pool.release(block)
        return remapped
