"""The prefix index: which block holds the KV of which token path.

What a full block holds depends on everything before it, so an entry's key is the whole path: a `Prefix` is the
block's own tokens linked to the prefix before it. Its hash chains the hashes of the links, which makes finding the
next block of a path cheap; equality compares the tokens of the whole path (down to a link that both share), so a
collision of hashes costs time and is never a wrong hit. The namespace is part of the key.

Entries whose block nobody refers to are *idle*. They are kept in the order of their last release. `release` goes
through a table from its end, so a path usually loses its tail before its beginning; `least_recent` makes sure of it.
"""

from collections import OrderedDict
from collections.abc import Container, Sequence

from pagedkv.spec.words import Block, Identity, Namespace, Token


class Prefix:
    """An immutable token path of whole blocks, as a chain: `parent` and then `block_tokens`."""

    __slots__ = ("_hash", "block_tokens", "namespace", "parent")

    def __init__(self, namespace: Namespace, parent: "Prefix | None", block_tokens: tuple[Token, ...]) -> None:
        self.namespace, self.parent, self.block_tokens = namespace, parent, block_tokens
        self._hash: int = hash((namespace if parent is None else parent._hash, block_tokens))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Prefix) or self.namespace != other.namespace:
            return False
        mine: Prefix | None = self
        theirs: Prefix | None = other
        while mine is not theirs:
            if mine is None or theirs is None or mine.block_tokens != theirs.block_tokens:
                return False
            mine, theirs = mine.parent, theirs.parent
        return True

    def identity(self) -> Identity:
        """The same, written out: namespace and all tokens up to the end of the block."""
        links: list[tuple[Token, ...]] = []
        link: Prefix | None = self
        while link is not None:
            links.append(link.block_tokens)
            link = link.parent
        return Identity(self.namespace, tuple(token for tokens in reversed(links) for token in tokens))


class PrefixIndex:
    """At most one block for each prefix, and one prefix for each block."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.block_of: dict[Prefix, Block] = {}
        self.prefix_of: dict[Block, Prefix] = {}
        self.children: dict[Prefix, set[Block]] = {}
        """For each prefix the indexed blocks that continue it by one block."""
        self.idle: OrderedDict[Block, None] = OrderedDict()
        """Indexed blocks that nobody refers to, the least recently released first."""
        self.unwritten: set[Block] = set()
        """With `publish="schedule"`: indexed blocks whose KV is only planned."""

    def __contains__(self, block: object) -> bool:
        return block in self.prefix_of

    def match(self, namespace: Namespace, tokens: Sequence[Token]) -> list[Block]:
        """The blocks of the longest indexed prefix of `tokens`. Pure: recency stays."""
        blocks: list[Block] = []
        prefix: Prefix | None = None
        for start in range(0, len(tokens) - self.block_size + 1, self.block_size):
            prefix = Prefix(namespace, prefix, tuple(tokens[start : start + self.block_size]))
            block = self.block_of.get(prefix)
            if block is None:
                break
            blocks.append(block)
            prefix = self.prefix_of[block]  # the stored chain, so that the next comparison ends at once
        return blocks

    def insert(self, prefix: Prefix, block: Block, written: bool = True) -> Block:
        """Enter a used block, unless the prefix has one already: the present entry stays. The block that it has now."""
        if prefix in self.block_of:
            return self.block_of[prefix]
        self.block_of[prefix], self.prefix_of[block] = block, prefix
        if prefix.parent is not None:
            self.children.setdefault(prefix.parent, set()).add(block)
        if not written:
            self.unwritten.add(block)
        return block

    def remove(self, block: Block) -> None:
        """Drop the entry of `block`, used or idle."""
        prefix = self.prefix_of.pop(block)
        del self.block_of[prefix]
        self.idle.pop(block, None)
        self.unwritten.discard(block)
        if prefix.parent is not None:
            siblings = self.children[prefix.parent]
            siblings.remove(block)
            if not siblings:
                del self.children[prefix.parent]

    def least_recent(self, skip: Container[Block]) -> Block:
        """The idle block outside `skip` that was released first, of those that no other such block continues.

        A parent without its child can still be hit, a child without its parent cannot; so children go first.
        """
        for block in self.idle:
            if block not in skip and not any(
                child in self.idle and child not in skip for child in self.children.get(self.prefix_of[block], ())
            ):
                return block
        raise LookupError("no idle block to evict")

    def relabel(self, new_block: Sequence[Block]) -> None:
        """Block `b` is called `new_block[b]` from now on."""
        self.block_of = {prefix: new_block[block] for prefix, block in self.block_of.items()}
        self.prefix_of = {new_block[block]: prefix for block, prefix in self.prefix_of.items()}
        self.children = {prefix: {new_block[block] for block in blocks} for prefix, blocks in self.children.items()}
        self.idle = OrderedDict((new_block[block], None) for block in self.idle)
        self.unwritten = {new_block[block] for block in self.unwritten}

    def copy(self) -> "PrefixIndex":
        twin = PrefixIndex(self.block_size)
        if self.prefix_of:
            twin.block_of = dict(self.block_of)
            twin.prefix_of = dict(self.prefix_of)
            twin.children = {prefix: set(blocks) for prefix, blocks in self.children.items()}
            twin.idle = self.idle.copy()
            twin.unwritten = set(self.unwritten)
        return twin
