"""The operations on the prefix index itself."""

import numpy as np

from pagedkv.optimized.admission import present
from pagedkv.optimized.arguments import Tokens, hashable, integer, token_array
from pagedkv.optimized.core import ManagerCore, atomic
from pagedkv.optimized.events import Event, IndexCleared
from pagedkv.optimized.loops.memory import LISTENING, NOTHING
from pagedkv.optimized.state import DONE
from pagedkv.spec.words import Misuse, Namespace, Ok, Outcome, Reason, Refused


class Prefixes(ManagerCore):
    """Look up, hold and drop what the index knows. No operation here is about a request."""

    def lookup(self, tokens: Tokens, namespace: Namespace = "") -> Ok:
        """The length of the present prefix in tokens, in whole blocks. Changes nothing, not even recency."""
        state, prefix = self._own_state(), token_array(tokens, 0)
        bs = state.config.block_size
        return Ok(
            cached_tokens=len(present(state, hashable("namespace", namespace), prefix, len(prefix) // bs).nodes) * bs
        )

    @atomic
    def pin(self, tokens: Tokens, namespace: Namespace = "") -> Ok:
        """Hold the longest present prefix, and return its length. Pins nest."""
        state, prefix = self._state, token_array(tokens, 0)
        bs, pinned = state.config.block_size, (hashable("namespace", namespace), prefix.tobytes())
        hit = present(state, namespace, prefix, len(prefix) // bs)
        holders = state.paths.blocks[hit.nodes]
        blocks = holders[holders != NOTHING].astype(np.int64)
        state.pool.acquire(blocks)
        state.journal.set(state.pins, pinned, (*state.pins.get(pinned, ()), blocks))
        return Ok(cached_tokens=len(hit.nodes) * bs)

    @atomic
    def unpin(self, tokens: Tokens, namespace: Namespace = "") -> Ok:
        """Undo the latest pin of these tokens."""
        state, pinned = self._state, (hashable("namespace", namespace), token_array(tokens, 0).tobytes())
        if pinned not in state.pins:
            raise Misuse("tokens", tokens, "the tokens of a pin that has not been undone")
        *earlier, blocks = state.pins[pinned]
        state.pool.release(blocks[::-1])
        if earlier:
            state.journal.set(state.pins, pinned, tuple(earlier))
        else:
            state.journal.delete(state.pins, pinned)
        return DONE

    @atomic
    def evict(self, blocks: int) -> Ok:
        """Drop the entries of the `blocks` blocks that have been idle longest; `evicted` says how many there were."""
        return Ok(evicted=self._state.pool.evict(integer("blocks", blocks, 0)))

    @atomic
    def reset_prefix_index(self) -> Outcome:
        """Empty the index. Refused while pins exist."""
        state = self._state
        if state.pins:
            return Refused(Reason.PINNED)
        counters = state.journal.counters
        counters[LISTENING] = False  # one event says it all
        state.pool.evict(state.pool.idle)
        state.pool.drop_entries(np.flatnonzero(state.index.entry != NOTHING))
        state.paths.settle()
        counters[LISTENING] = state.events.enabled
        if state.events.enabled:
            state.events.add(IndexCleared())
        return DONE

    @atomic
    def take_events(self) -> tuple[Event, ...]:
        """What has entered and left the prefix index since this was last asked, in order. Empty without the option
        `events`; with it, ask often: what is not taken is kept."""
        return self._state.events.take()
