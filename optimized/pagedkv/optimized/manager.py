"""The block manager: which block holds which part of which request. Host memory only; it never touches KV.

Operations mean what `pagedkv.spec` says. Each checks its arguments, then whether blocks suffice, and only then
changes anything: `Refused` and `Misuse` leave everything as it was. A serving engine uses the batch operations, which
do a whole step in a handful of array operations; the scalar ones are for what happens now and then.

Not thread-safe.

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

from collections.abc import Sequence

import numpy as np

from pagedkv.optimized import batch, growth, residency
from pagedkv.optimized.admission import plan_entry, seat
from pagedkv.optimized.arguments import (
    MAX_INT32,
    Int32,
    Integers,
    Tokens,
    hashable,
    int_array,
    integer,
    last_of_each,
    optional,
    token_array,
)
from pagedkv.optimized.index import HashFunction, keyed_hash
from pagedkv.optimized.invariants import check
from pagedkv.optimized.plan import StepPlan
from pagedkv.optimized.rows import RESIDENT
from pagedkv.optimized.state import ManagerState, blocks_of
from pagedkv.optimized.stats import Stats, stats_of
from pagedkv.spec.words import (
    Config, Misuse, Namespace, Ok, Outcome, PreemptMode, Reason, Refused, RequestId, StepId,
)  # fmt: skip


class BlockManager:
    """A pool of `num_blocks` blocks of `block_size` tokens, and the requests in it.

    Options as in `pagedkv.spec.Config`. Slots, and so `num_blocks * block_size`, are at most 2**31 - 1, as are
    numbers in options, tokens and the length of a request: an operation that would lengthen one past it is refused as
    unservable. `hash_seed`: processes that share it agree on the digests of the prefix index, for namespaces whose
    `repr` they agree on; without it they are keyed by chance. `hash_function` replaces the hash (see
    `index.HashFunction`).

    Raises `Misuse` for options of another type or out of range.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        prefix_cache: bool = True,
        sliding_window: int | None = None,
        max_rollback: int = 0,
        swap_blocks: int = 0,
        max_requests: int | None = None,
        overlapped_steps: bool = False,
        hash_seed: bytes | None = None,
        hash_function: HashFunction | None = None,
    ) -> None:
        config = Config(
            integer("num_blocks", num_blocks, 1, MAX_INT32),
            integer("block_size", block_size, 1, MAX_INT32),
            prefix_cache=prefix_cache,
            sliding_window=optional("sliding_window", sliding_window, 1, MAX_INT32),
            max_rollback=integer("max_rollback", max_rollback, 0, MAX_INT32),
            swap_blocks=integer("swap_blocks", swap_blocks, 0, MAX_INT32),
            max_requests=optional("max_requests", max_requests, 1, MAX_INT32),
            overlapped_steps=overlapped_steps,
        )
        most = MAX_INT32 // config.block_size
        if config.num_blocks > most:
            raise Misuse("num_blocks", num_blocks, f"at most {MAX_INT32} slots, so {most} blocks")
        if hash_seed is not None and not isinstance(hash_seed, bytes):
            raise Misuse("hash_seed", hash_seed, "bytes, or None for a key by chance")
        if hash_function is not None and not callable(hash_function):
            raise Misuse("hash_function", hash_function, "a function of two bytes, or None for keyed BLAKE2b")
        self._state = ManagerState(config, keyed_hash(hash_seed) if hash_function is None else hash_function)

    @property
    def config(self) -> Config:
        return self._state.config

    @property
    def available_blocks(self) -> int:
        """Blocks that may be handed out: free or idle, and not held by a step in flight."""
        return self._state.pool.available

    # Requests come, grow and go.

    def admit(
        self, request: RequestId, tokens: Tokens, namespace: Namespace = "", reserve: int | None = None
    ) -> Outcome:
        """A new request; `cached_tokens` of its prompt were found. Slots for its first `reserve` positions."""
        state = self._state
        if hashable("request", request) in state.rows.row_of:
            raise Misuse("request", request, "the id of no known request")
        prompt = token_array(tokens)
        hashable("namespace", namespace)
        if reserve is not None:
            reserve = integer("reserve", reserve, 0, len(prompt))
        entry = plan_entry(state, namespace, prompt, len(prompt) if reserve is None else reserve)
        if isinstance(entry, Refused):
            return entry
        return seat(state, state.rows.add(request, namespace, prompt), entry)

    def reserve(self, request: RequestId, length: int) -> Outcome:
        """Slots up to `length`: the next chunk of a prefill, or lookahead for drafts."""
        row = self._state.rows.find_resident("request", request)
        return growth.reserve(self._state, row, integer("length", length, 1))

    def append(self, request: RequestId, tokens: Tokens) -> Outcome:
        """Extend a request by at least one token; `slots` of the new positions, `copies` to run before the writes."""
        row = self._state.rows.find_resident("request", request)
        return growth.append(self._state, row, token_array(tokens))

    def commit(self, request: RequestId, computed: int) -> Ok:
        """The KV of the positions below `computed` is written: full blocks may be found, dead ones are released."""
        rows = self._state.rows
        row = rows.find_resident("request", request)
        last = min(int(rows.reserved[row]), int(rows.length[row]))
        growth.commit(self._state, row, integer("computed", computed, int(rows.computed[row]), last))
        return Ok()

    def fork(self, parent: RequestId, child: RequestId) -> Outcome:
        """The child is the parent: same tokens, same blocks. The parent must be computed to its end."""
        rows = self._state.rows
        row = rows.find_resident("parent", parent)
        if hashable("child", child) in rows.row_of:
            raise Misuse("child", child, "the id of no known request")
        if rows.computed[row] != rows.length[row]:
            allowed = f"a request computed to its end; {rows.computed[row]} of {rows.length[row]} tokens are"
            raise Misuse("parent", parent, allowed)
        return residency.fork(self._state, row, child)

    def truncate(self, request: RequestId, length: int) -> Outcome:
        """Take back the tokens at positions >= length, and lookahead."""
        row = self._state.rows.find_resident("request", request)
        most = int(self._state.rows.length[row])
        return residency.truncate(self._state, row, integer("length", length, 1, most))

    def free(self, request: RequestId) -> Ok:
        """The request is gone."""
        residency.free(self._state, np.array([self._state.rows.find("request", request)], np.int32))
        return Ok()

    def preempt(self, request: RequestId, mode: PreemptMode = "recompute") -> Outcome:
        """Give up the blocks and keep the tokens; with "swap" the caller saves the blocks first."""
        row = self._state.rows.find_resident("request", request)
        if not isinstance(mode, str) or mode not in ("recompute", "swap"):
            raise Misuse("mode", mode, "'recompute' or 'swap'")
        return residency.preempt(self._state, row, mode)

    def resume(self, request: RequestId) -> Outcome:
        """A preempted request comes back."""
        row = self._state.rows.find("request", request, "the id of a preempted request")
        if self._state.rows.state[row] == RESIDENT:
            raise Misuse("request", request, "the id of a preempted request")
        return residency.resume(self._state, row)

    # The same for many requests at once. `requests` are ids, or the rows that `rows` returned for them.

    def rows(self, requests: Sequence[RequestId]) -> Int32:
        """Handles of these requests, (count,) int32: they spare a look-up a step.

        A handle is good until its request is freed. Then it names nothing, and is misuse, until an admit or a fork
        reuses the row: from then on it names that other request, and nothing can tell.
        """
        return self._state.rows.handles(requests, preempted=True)

    def append_batch(
        self, requests: Sequence[RequestId] | Int32, tokens: Tokens, counts: Integers | None = None
    ) -> StepPlan:
        """Append counts[i] (1 unless given) of the tokens, in order, to requests[i]. Equals `append` row by row."""
        rows = self._state.rows.handles(requests)
        appended = token_array(tokens, 0)
        if counts is None:
            each = np.ones(len(rows), np.int64)
        else:  # none is larger than what all amount to, so that the sum is exact
            each = int_array("counts", counts, len(rows), 1, max(1, len(appended)))
        if int(each.sum()) != len(appended):
            raise Misuse("tokens", tokens, f"{int(each.sum())} tokens, as the counts of {len(rows)} requests say")
        return batch.append_rows(self._state, rows, appended, each)

    def reserve_batch(self, requests: Sequence[RequestId] | Int32, lengths: Integers) -> StepPlan:
        """Slots of requests[i] up to lengths[i]. Equals `reserve` row by row."""
        rows = self._state.rows.handles(requests)
        return batch.reserve_rows(self._state, rows, int_array("lengths", lengths, len(rows), 1))

    def commit_batch(self, requests: Sequence[RequestId] | Int32, computed: Integers) -> None:
        """The KV of requests[i] below computed[i] is written. Equals `commit` row by row."""
        table, rows = self._state.rows, self._state.rows.handles(requests)
        values = int_array("computed", computed, len(rows), 0)
        batch.check_commits(table, rows, values)
        batch.commit_rows(self._state, rows, values)

    def free_batch(self, requests: Sequence[RequestId] | Int32) -> None:
        """These requests, each named once, are gone. Equals `free` row by row."""
        table, rows = self._state.rows, self._state.rows.handles(requests, preempted=True)
        last = last_of_each(rows, table.scratch)
        if not last.all():
            again = table.request[rows[last.argmin()]]
            raise Misuse("requests", again, "each request at most once in a batch of free")
        residency.free(self._state, rows)

    # The prefix index.

    def lookup(self, tokens: Tokens, namespace: Namespace = "") -> Ok:
        """The length of the present prefix in tokens, in whole blocks. Changes nothing, not even recency."""
        prefix = token_array(tokens, 0)
        nodes = self._state.match(hashable("namespace", namespace), prefix, len(prefix))
        return Ok(cached_tokens=len(nodes) * self.config.block_size)

    def pin(self, tokens: Tokens, namespace: Namespace = "") -> Ok:
        """Hold the longest present prefix, and return its length. Pins nest."""
        state, prefix = self._state, token_array(tokens, 0)
        nodes = state.match(hashable("namespace", namespace), prefix, len(prefix))
        blocks = blocks_of(nodes)
        state.pool.acquire(blocks)
        state.pins.setdefault((namespace, prefix.tobytes()), []).append(blocks)
        return Ok(cached_tokens=len(nodes) * self.config.block_size)

    def unpin(self, tokens: Tokens, namespace: Namespace = "") -> Ok:
        """Undo the latest pin of these tokens."""
        state, pinned = self._state, (hashable("namespace", namespace), token_array(tokens, 0).tobytes())
        if pinned not in state.pins:
            raise Misuse("tokens", tokens, "the tokens of a pin that has not been undone")
        state.pool.release(state.pins[pinned].pop()[::-1])
        if not state.pins[pinned]:
            del state.pins[pinned]
        return Ok()

    def evict(self, blocks: int) -> Ok:
        """Drop the entries of the `blocks` blocks that have been idle longest; `evicted` says how many there were."""
        return Ok(evicted=self._state.pool.evict(integer("blocks", blocks, 0)))

    def reset_prefix_index(self) -> Outcome:
        """Empty the index. Refused while pins exist."""
        state = self._state
        if state.pins:
            return Refused(Reason.PINNED)
        state.pool.evict(len(state.pool.idle))
        state.pool.forget(np.flatnonzero(state.index.indexed).astype(np.int32))
        return Ok()

    # Steps in flight, and relabelling.

    def begin_step(self, step: StepId) -> Ok:
        """A forward is launched: blocks released from now on are held until it has ended."""
        if not self.config.overlapped_steps:
            raise Misuse("step", step, "no step at all: execution is stream-ordered unless overlapped_steps is set")
        if hashable("step", step) in self._state.pool.steps:
            raise Misuse("step", step, "a step that is not in flight")
        self._state.pool.begin_step(step)
        return Ok()

    def end_step(self, step: StepId) -> Ok:
        """The forward has ended."""
        if hashable("step", step) not in self._state.pool.steps:
            raise Misuse("step", step, "a step in flight")
        self._state.pool.end_step(step)
        return Ok()

    def permute(self, new_block: Integers) -> Ok:
        """Block `b` is called `new_block[b]` from now on. The caller moves the contents."""
        state, count = self._state, self.config.num_blocks
        allowed = f"a permutation of 0..{count - 1}"
        labels = int_array("new_block", new_block, count, 0)
        if not np.array_equal(np.sort(labels), np.arange(count)):
            raise Misuse("new_block", new_block, allowed)
        if state.pool.steps:
            raise Misuse("new_block", new_block, f"no permutation while {len(state.pool.steps)} steps are in flight")
        residency.relabel(state, labels.astype(np.int32))
        return Ok()

    # Observation.

    def stats(self) -> Stats:
        """Counts of the pool and of what has happened so far."""
        return stats_of(self._state)

    def check(self) -> None:
        """Verify every invariant, in O(blocks + tokens). Raises `InvariantBroken`, which names the law."""
        check(self._state)
