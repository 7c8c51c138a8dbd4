"""The prefix index as its users see it: lookup, pin, unpin, evict, reset_prefix_index."""

from collections.abc import Sequence

from pagedkv.reference.arguments import integer, token_path
from pagedkv.reference.base import ManagerBase
from pagedkv.spec.words import Misuse, Namespace, Ok, Outcome, Reason, Refused, Token, check_id


class PrefixOperations(ManagerBase):
    """The operations that belong to no request."""

    def lookup(self, tokens: Sequence[Token], namespace: Namespace = "") -> Outcome:
        """Length of the longest present prefix, in tokens, whole blocks. Changes nothing, not even recency."""
        check_id("namespace", namespace)
        hits = self.pool.index.match(namespace, token_path("tokens", tokens))
        return Ok(cached_tokens=len(hits) * self.config.block_size)

    def pin(self, tokens: Sequence[Token], namespace: Namespace = "") -> Outcome:
        """Hold the blocks of the longest present prefix until `unpin` is called with the same arguments. Pins nest."""
        check_id("namespace", namespace)
        path = token_path("tokens", tokens)
        hits = self.pool.index.match(namespace, path)
        for block in hits:
            self.pool.share(block)
        self.pins.setdefault((namespace, path), []).append(hits)
        return Ok(cached_tokens=len(hits) * self.config.block_size)

    def unpin(self, tokens: Sequence[Token], namespace: Namespace = "") -> Outcome:
        """Undo the latest pin that was made with the same arguments."""
        check_id("namespace", namespace)
        path = token_path("tokens", tokens)
        if (namespace, path) not in self.pins:
            raise Misuse("tokens", tokens, "a path that is pinned in this namespace")
        pins = self.pins[namespace, path]
        for block in reversed(pins.pop()):
            self.pool.release(block)
        if not pins:
            del self.pins[namespace, path]
        return Ok()

    def evict(self, blocks: int) -> Outcome:
        """Drop the entries of up to `blocks` idle blocks; `Ok.evicted` says how many there were."""
        evicted = min(integer("blocks", blocks, 0), len(self.pool.index.idle))
        for _ in range(evicted):
            self.pool.forget(self.pool.choose_victim(skip=()))
        return Ok(evicted=evicted)

    def reset_prefix_index(self) -> Outcome:
        """Forget every entry, of used blocks too. Refused while anything is pinned."""
        if self.pins:
            return Refused(Reason.PINNED)
        for block in list(self.pool.index.prefix_of):
            self.pool.forget(block)
        return Ok()
