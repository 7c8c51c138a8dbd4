"""The block manager: which block holds which part of which request. Host memory only; it never touches KV.

Operations mean what `pagedkv.spec` says. Each checks its arguments, then whether blocks suffice, and only then
changes anything: `Refused` and `Misuse` leave everything as it was. A serving engine uses the batch operations, which
do a whole step in two compiled loops; the scalar ones are for what happens now and then.

If anything inside fails (no memory, an interrupt, a hash function that raises), everything is as it was, too, and the
operation can be tried again.

Not thread-safe: a manager belongs to one thread at a time. With `debug=True` a call from another one is `Misuse`.

>>> manager = BlockManager(num_blocks=8, block_size=4)
>>> manager.admit("a", [1, 2, 3, 4, 5]).cached_tokens
0
>>> outcome = manager.commit("a", 5)
>>> manager.admit("b", [1, 2, 3, 4, 9]).cached_tokens
4
>>> plan = manager.append_batch(["a", "b"], [6, 10])
>>> plan.seq_lens, plan.slot_mapping
(array([6, 6], dtype=int32), array([5, 9]))
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from pagedkv.optimized import commits, growth, residency
from pagedkv.optimized.admission import plan_entry, seat
from pagedkv.optimized.arguments import Integers, Tokens, flag, hashable, int_array, integer, token_array
from pagedkv.optimized.loops.arrays import Int32
from pagedkv.optimized.core import ManagerCore, atomic
from pagedkv.optimized.external import Invalidated, invalidate, seat_external
from pagedkv.optimized.leasing import Leasing
from pagedkv.optimized.loops.memory import COMPUTED, HIT_TOKENS, LENGTH
from pagedkv.optimized.observation import Observation
from pagedkv.optimized.plan import StepPlan
from pagedkv.optimized.prefixes import Prefixes
from pagedkv.optimized.rows import Info
from pagedkv.optimized.state import DONE
from pagedkv.spec.words import Misuse, Namespace, Ok, Outcome, PreemptMode, Refused, RequestId, StepId


class BlockManager(Prefixes, Leasing, Observation, ManagerCore):
    """A pool of `num_blocks` blocks of `block_size` tokens, and the requests in it.

    Options as in `pagedkv.spec.Config`. Slots, and so `num_blocks * block_size`, are at most 2**31 - 1, as are
    numbers in options, tokens and the length of a request: an operation that would lengthen one past it is refused as
    unservable. Further options:

    - `sink_tokens`: with a `sliding_window`, positions at the beginning that are kept for ever.
    - `groups`: cache groups (see `CacheGroup`), each with tables of its own over the one pool. A hit is then the
      longest prefix that is good for all of them: whole for full attention, what the window will look at for the rest.
    - `hash_seed`: processes that share it agree on the digests of the prefix index, for namespaces whose `repr` they
      agree on; without it they are keyed by chance. `hash_function` replaces the hash (see `hashing.HashFunction`).
    - `events`: keep `take_events()` informed of what enters and leaves the prefix index.
    - `debug`: see to it that one thread only uses the manager.

    Raises `Misuse` for options of another type or out of range.
    """

    # Requests come, grow and go.

    @atomic
    def admit(
        self,
        request: RequestId,
        tokens: Tokens,
        namespace: Namespace = "",
        reserve: int | None = None,
        *,
        read_cache: bool = True,
        write_cache: bool = True,
    ) -> Outcome:
        """A new request; `cached_tokens` of its prompt were found. Slots for its first `reserve` positions.

        `read_cache=False`: nothing is looked for, so that every position is computed (for the log-probabilities of a
        prompt, say). `write_cache=False`: nothing that it computes can be found. Both hold for its whole life, and for
        its forks.
        """
        info, prompt, count = self._newcomer(request, tokens, namespace, reserve, read_cache, write_cache)
        entry = plan_entry(self._state, namespace, prompt, count, reads=info.reads)
        if entry.refused:
            return entry.refused
        self._state.journal.counters[HIT_TOKENS] += len(entry.nodes) * self.config.block_size
        return seat(self._state, self._state.rows.add(info, prompt), len(prompt), entry)

    @atomic
    def admit_external(
        self,
        request: RequestId,
        tokens: Tokens,
        external: int,
        namespace: Namespace = "",
        reserve: int | None = None,
    ) -> Outcome:
        """A new request, the KV of whose first `external` positions comes from elsewhere. `cached_tokens` were found
        here; `slots` are those of the positions from there up to `external`, where the rest of it is to be written.

        Once it is there, `commit(request, external)`: not before can anybody find it. If it fails to come, compute it:
        nothing has been promised. If it was wrong and committed, `invalidate`. `reserve` as in `admit`, at least
        `external`.
        """
        info, prompt, count = self._newcomer(request, tokens, namespace, reserve, True, True)
        external = integer("external", external, 0, len(prompt))
        entry = plan_entry(self._state, namespace, prompt, max(count, external))
        if entry.refused:
            return entry.refused
        self._state.journal.counters[HIT_TOKENS] += len(entry.nodes) * self.config.block_size
        return seat_external(self._state, self._state.rows.add(info, prompt), len(prompt), entry, external)

    @atomic
    def invalidate(self, request: RequestId, from_position: int) -> Invalidated | Refused:
        """The KV of a request from this position on is not what it should be: a transfer failed, a check did not hold.

        The request is rolled back to there, keeping its tokens; `reserve` gives it slots again. Paths that begin with
        the same tokens up to that position can no longer be found. `affected` names the other requests that begin so:
        they are as they were, and to be invalidated, too. Refused as `released` below what a window has released.
        """
        row = self._state.rows.find_resident("request", request)
        most = int(self._state.rows.length[row])
        return invalidate(self._state, row, integer("from_position", from_position, 0, most))

    @atomic
    def reserve(self, request: RequestId, length: int) -> Outcome:
        """Slots up to `length`: the next chunk of a prefill, or lookahead for drafts."""
        row = self._state.rows.find_resident("request", request)
        return growth.reserve(self._state, row, integer("length", length, 1))

    @atomic
    def append(self, request: RequestId, tokens: Tokens) -> Outcome:
        """Extend a request by at least one token; `slots` of the new positions, `copies` to run before the writes."""
        row = self._state.rows.find_resident("request", request)
        return growth.append(self._state, row, token_array(tokens))

    @atomic
    def commit(self, request: RequestId, computed: int) -> Ok:
        """The KV of the positions below `computed` is written: full blocks may be found, dead ones are released."""
        rows = self._state.rows
        row = rows.find_resident("request", request)
        length, reserved, before = rows.numbers[LENGTH : COMPUTED + 1, row].tolist()
        commits.commit(self._state, row, integer("computed", computed, before, min(length, reserved)))
        return DONE

    @atomic
    def fork(self, parent: RequestId, child: RequestId) -> Outcome:
        """The child is the parent: same tokens, same blocks. The parent must be computed to its end."""
        rows = self._state.rows
        row = rows.find_resident("parent", parent)
        rows.check_new("child", child)
        if rows.computed[row] != rows.length[row]:
            allowed = f"a request computed to its end; {rows.computed[row]} of {rows.length[row]} tokens are"
            raise Misuse("parent", parent, allowed)
        return residency.fork(self._state, row, child)

    @atomic
    def truncate(self, request: RequestId, length: int) -> Outcome:
        """Take back the tokens at positions >= length, and lookahead."""
        row = self._state.rows.find_resident("request", request)
        most = int(self._state.rows.length[row])
        return residency.truncate(self._state, row, integer("length", length, 1, most))

    @atomic
    def free(self, request: RequestId) -> Ok:
        """The request is gone."""
        residency.free(self._state, self._state.rows.find("request", request))
        return DONE

    @atomic
    def preempt(self, request: RequestId, mode: PreemptMode = "recompute") -> Outcome:
        """Give up the blocks and keep the tokens; with "swap" the caller saves the blocks first."""
        row = self._state.rows.find_resident("request", request)
        if not isinstance(mode, str) or mode not in ("recompute", "swap"):
            raise Misuse("mode", mode, "'recompute' or 'swap'")
        return residency.preempt(self._state, row, mode)

    @atomic
    def resume(self, request: RequestId) -> Outcome:
        """A preempted request comes back."""
        return residency.resume(self._state, self._state.rows.find_preempted(request))

    # The same for many requests at once. `requests` are ids, or the rows that `rows` returned for them.

    def rows(self, requests: Sequence[RequestId]) -> Int32:
        """Handles of these requests, (count,) int32: they spare a look-up a step.

        A handle is good until its request is freed. Then it names nothing, and is misuse, until an admit or a fork
        reuses the row: from then on it names that other request, and nothing can tell.
        """
        return self._own_state().rows.handles(requests, preempted=True).astype(np.int32)

    @atomic
    def append_batch(
        self, requests: Sequence[RequestId] | Int32, tokens: Tokens, counts: Integers | None = None
    ) -> StepPlan:
        """Append counts[i] (1 unless given) of the tokens, in order, to requests[i]. Equals `append` row by row."""
        state, appended = self._state, token_array(tokens, 0)
        rows = state.rows.handles(requests)
        most = max(1, len(appended))  # so that the sum is exact
        each = None if counts is None else int_array("counts", counts, len(rows), 1, most)
        total = len(rows) if each is None else int(each.sum())
        if total != len(appended):
            raise Misuse("tokens", tokens, f"{total} tokens, as the counts of {len(rows)} requests say")
        return growth.append_rows(state, rows, appended, each)

    @atomic
    def reserve_batch(self, requests: Sequence[RequestId] | Int32, lengths: Integers) -> StepPlan:
        """Slots of requests[i] up to lengths[i]. Equals `reserve` row by row."""
        rows = self._state.rows.handles(requests)
        return growth.reserve_rows(self._state, rows, int_array("lengths", lengths, len(rows), 1))

    @atomic
    def commit_batch(self, requests: Sequence[RequestId] | Int32, computed: Integers) -> None:
        """The KV of requests[i] below computed[i] is written. Equals `commit` row by row."""
        rows = self._state.rows.handles(requests)
        values = int_array("computed", computed, len(rows), 0)
        commits.commit_rows(self._state, rows, values)

    @atomic
    def free_batch(self, requests: Sequence[RequestId] | Int32) -> None:
        """These requests, each named once, are gone. Equals `free` row by row."""
        table, rows = self._state.rows, self._state.rows.handles(requests, preempted=True)
        if len(set(rows.tolist())) < len(rows):
            again = next(row for row, count in Counter(rows.tolist()).items() if count > 1)
            raise Misuse("requests", table.known(again).request, "each request at most once in a batch of free")
        residency.free_rows(self._state, rows)

    # Steps in flight, and relabelling.

    @atomic
    def begin_step(self, step: StepId) -> Ok:
        """A forward is launched: blocks released from now on are held until it has ended."""
        if not self.config.overlapped_steps:
            raise Misuse("step", step, "no step at all: execution is stream-ordered unless overlapped_steps is set")
        if hashable("step", step) in self._state.pool.steps:
            raise Misuse("step", step, "a step that is not in flight")
        self._state.pool.begin_step(step)
        return DONE

    @atomic
    def end_step(self, step: StepId) -> Ok:
        """The forward has ended."""
        if hashable("step", step) not in self._state.pool.steps:
            raise Misuse("step", step, "a step in flight")
        self._state.pool.end_step(step)
        return DONE

    @atomic
    def permute(self, new_block: Integers) -> Ok:
        """Block `b` is called `new_block[b]` from now on, a leased one, too. The caller moves the contents."""
        state, count = self._state, self.config.num_blocks
        allowed = f"a permutation of 0..{count - 1}"
        labels = int_array("new_block", new_block, count, 0)
        if not np.array_equal(np.sort(labels), np.arange(count)):
            raise Misuse("new_block", new_block, allowed)
        if state.pool.steps:
            raise Misuse("new_block", new_block, f"no permutation while {len(state.pool.steps)} steps are in flight")
        residency.relabel(state, labels)
        return DONE

    def _newcomer(
        self,
        request: RequestId,
        tokens: Tokens,
        namespace: Namespace,
        reserve: int | None,
        reads: bool,
        publishes: bool,
    ) -> tuple[Info, Int32, int]:
        """Who comes, its prompt, and for how many positions it wants slots."""
        self._state.rows.check_new("request", request)
        reads, publishes = flag("read_cache", reads), flag("write_cache", publishes)
        prompt, cache = token_array(tokens), self.config.prefix_cache
        info = Info(request, hashable("namespace", namespace), cache and reads, cache and publishes)
        return info, prompt, len(prompt) if reserve is None else integer("reserve", reserve, 0, len(prompt))
