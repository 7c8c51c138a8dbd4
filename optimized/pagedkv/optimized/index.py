"""The prefix index: finding full blocks by what they hold.

What a full block holds is its *path*: the namespace and all tokens up to the block's end. Paths form a tree, and a
`Node` is one path: its parent is the path one block shorter. A chained, keyed 128-bit hash finds a node; the node's
own tokens and the identity of its parent *object* are then compared. By induction along the chain two paths share a
node only if they are equal token for token, so a collision of the hash can never cause a wrong hit.

A node lives as long as somebody needs it: its entry (the block that holds its KV), a child node, or a request whose
computed blocks end there. So a node may outlive its entry. It then only keeps the paths below it exact, and a block
published for the same path again finds them.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pagedkv.optimized.arguments import Int32
from pagedkv.optimized.copying import twin_of
from pagedkv.spec.words import Namespace

HashFunction: TypeAlias = Callable[[bytes, bytes], bytes]
"""(digest of the parent, tokens of the block as int32 bytes) -> digest. Any collision is harmless, only slow. It must
answer for all bytes: a commit in which it raises is left half done."""

NO_BLOCK: Final = -1


class Node:
    """One path. `block` holds its KV, or is NO_BLOCK; `users` counts entry, child nodes and cursors of requests."""

    __slots__ = ("block", "digest", "namespace", "parent", "tokens", "twin", "users")

    def __init__(self, namespace: Namespace, parent: "Node | None", tokens: bytes, digest: bytes) -> None:
        self.namespace, self.parent, self.tokens, self.digest = namespace, parent, tokens, digest
        self.block, self.users = NO_BLOCK, 0
        self.twin: Node | None = None  # the next node with the same digest


def keyed_hash(seed: bytes | None = None) -> HashFunction:
    """Keyed BLAKE2b of 128 bits. Without a seed the key is random, so that nobody outside can aim for collisions;
    processes that share a seed agree on the digests."""
    key = secrets.token_bytes(32) if seed is None else hashlib.blake2b(seed, digest_size=32).digest()

    def digest(parent: bytes, tokens: bytes) -> bytes:
        return hashlib.blake2b(parent + tokens, digest_size=16, key=key).digest()

    return digest


class PrefixIndex:
    """Paths, and which block holds which."""

    def __init__(self, num_blocks: int, block_size: int, hash_function: HashFunction) -> None:
        self._stride = block_size * np.dtype(np.int32).itemsize
        self._hash = hash_function
        self._roots: dict[Namespace, Node] = {}
        self._first: dict[bytes, Node] = {}  # by digest; further nodes of the same digest follow as `twin`
        self._entries: list[Node | None] = [None] * num_blocks
        self.indexed: NDArray[np.bool_] = np.zeros(num_blocks, np.bool_)
        """(num_blocks,): the block has an entry."""

    def match(self, namespace: Namespace, tokens: Int32, limit: int) -> list[Node]:
        """The nodes of the longest present prefix, at most `limit`. Changes nothing."""
        nodes: list[Node] = []
        parent, data = self._roots.get(namespace), tokens.tobytes()
        for start in range(0, min(limit, len(data) // self._stride) * self._stride, self._stride):
            if parent is None:
                break
            block_tokens = data[start : start + self._stride]
            parent = self._find(self._hash(parent.digest, block_tokens), parent, block_tokens)
            if parent is None or parent.block == NO_BLOCK:
                break
            nodes.append(parent)
        return nodes

    def root(self, namespace: Namespace) -> Node:
        """The empty path of a namespace. The caller holds what it keeps.

        Namespaces are the same if they are equal, as keys of a dictionary are: 1, 1.0 and True are one namespace.
        `repr` only tells digests apart, and two namespaces that look alike share nothing.
        """
        if namespace not in self._roots:
            self._roots[namespace] = Node(namespace, None, b"", self._hash(b"", repr(namespace).encode()))
        return self._roots[namespace]

    def child(self, parent: Node, tokens: bytes) -> Node:
        """The path one block longer, made if it is not known. The caller holds what it keeps."""
        digest = self._hash(parent.digest, tokens)
        node = self._find(digest, parent, tokens)
        if node is None:
            node = Node(parent.namespace, parent, tokens, digest)
            node.twin = self._first.get(digest)
            self._first[digest] = node
            parent.users += 1
        return node

    def hold(self, node: Node) -> None:
        node.users += 1

    def drop(self, node: Node) -> None:
        """One user fewer. A path that nobody needs is forgotten, and its ancestors with it if nobody needs them."""
        node.users -= 1
        while not node.users:
            parent = node.parent
            if parent is None:
                del self._roots[node.namespace]
                return
            self._unlink(node)
            node = parent
            node.users -= 1

    def publish(self, node: Node, block: int) -> None:
        """The block holds this path. If another one is known to, that one stays."""
        if node.block == NO_BLOCK:
            node.block = block
            self._entries[block] = node
            self.indexed[block] = True
            self.hold(node)

    def forget(self, blocks: Int32) -> None:
        """Drop the entries of these blocks; each has one."""
        self.indexed[blocks] = False
        for block in blocks.tolist():
            node = self._entries[block]
            assert node is not None
            self._entries[block] = None
            node.block = NO_BLOCK
            self.drop(node)

    def entries(self) -> Iterator[tuple[int, Node]]:
        """Indexed blocks and their paths."""
        for block in np.flatnonzero(self.indexed).tolist():
            node = self._entries[block]
            assert node is not None
            yield block, node

    def nodes(self) -> Iterator[Node]:
        """All paths, the empty ones too."""
        yield from self._roots.values()
        for node in self._first.values():
            each: Node | None = node
            while each is not None:
                yield each
                each = each.twin

    def copy(self) -> "tuple[PrefixIndex, dict[Node, Node]]":
        """The same index, and for each of its nodes the one that stands for it there."""
        twin = twin_of(self)
        nodes = {node: Node(node.namespace, None, node.tokens, node.digest) for node in self.nodes()}
        for node, other in nodes.items():
            other.block, other.users = node.block, node.users
            other.parent = node.parent and nodes[node.parent]
            other.twin = node.twin and nodes[node.twin]
        twin._roots = {namespace: nodes[node] for namespace, node in self._roots.items()}
        twin._first = {digest: nodes[node] for digest, node in self._first.items()}
        twin._entries = [node and nodes[node] for node in self._entries]
        return twin, nodes

    def relabel(self, new_block: Int32) -> None:
        """Block `b` is called `new_block[b]` from now on."""
        moved = list(self.entries())
        for block, _ in moved:
            self._entries[block] = None
        for block, node in moved:
            node.block = int(new_block[block])
            self._entries[node.block] = node
        self.indexed[new_block] = self.indexed.copy()

    def _find(self, digest: bytes, parent: Node, tokens: bytes) -> Node | None:
        node = self._first.get(digest)
        while node is not None and not (node.parent is parent and node.tokens == tokens):
            node = node.twin
        return node

    def _unlink(self, node: Node) -> None:
        before = self._first[node.digest]
        if before is node:
            if node.twin is None:
                del self._first[node.digest]
            else:
                self._first[node.digest] = node.twin
            return
        while before.twin is not node:
            assert before.twin is not None
            before = before.twin
        before.twin = node.twin


def path_tokens(node: Node) -> Int32:
    """The tokens of a path, from its beginning."""
    pieces: list[bytes] = []
    each: Node | None = node
    while each is not None:
        pieces.append(each.tokens)
        each = each.parent
    return np.frombuffer(b"".join(reversed(pieces)), np.int32)
