"""Paths: what full blocks hold, as a tree.

What a full block holds is its *path*: the namespace and all tokens up to the block's end. Paths form a tree, and a
*node*, a small integer, is one path: its parent is the path one block shorter.

Most paths have one child, and it is found by following a pointer and comparing tokens, with no hash at all. Only where
paths part is a hash needed: further children are found by a keyed 128-bit digest of the parent and the block's tokens,
and compared too. So a collision can never cause a wrong hit, nor even a miss, and a prompt costs a digest for each
place where it leaves the beaten track, not one for each block.

The pointers are followed in `loops.paths`. Here are namespaces and digests.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pagedkv.optimized.loops.arrays import Int32, Int64
from pagedkv.optimized.copying import twin_of
from pagedkv.optimized.hashing import HashFunction, namespace_digest
from pagedkv.optimized.journal import Journal, enlarged
from pagedkv.optimized.loops import calls
from pagedkv.optimized.loops.memory import (
    FIRST_CHILD, GONE, HOLDERS, NODE_STACK, NOTHING, NUM_NODES_UNUSED, OTHERS, PARENT, UNSETTLED, USERS,
)  # fmt: skip
from pagedkv.spec.words import Namespace


class Path(NamedTuple):
    """Part of a path, downwards."""

    nodes: Int64
    """(num_blocks,)"""
    end: int
    """The last of them, or where it started."""


class PathTree:
    """The paths that somebody needs: a block that holds one, a longer path, or a request whose computed blocks end
    there."""

    def __init__(self, hash_function: HashFunction, journal: Journal) -> None:
        self._hash, self._journal = hash_function, journal
        self.roots: dict[Namespace, int] = {}
        self._namespace: dict[int, Namespace] = {}  # of each empty path
        self._others: dict[bytes, int] = {}  # children that are not first, by digest; those of one digest are twins
        self._twin: dict[int, int] = {}
        self._digest: dict[int, bytes] = {}  # by which each of them is found
        self._path_digest: dict[int, bytes] = {}  # of paths that events have named

    @property
    def parent(self) -> Int32:
        return self._column(PARENT)

    @property
    def first_child(self) -> Int32:
        return self._column(FIRST_CHILD)

    @property
    def users(self) -> Int32:
        return self._column(USERS)

    @property
    def tokens(self) -> Int32:
        return self._journal.memory.spelled

    @property
    def blocks(self) -> Int32:
        """(max_nodes, num_groups): what block holds the path in each cache group, or NOTHING."""
        return self._journal.memory.links[:, HOLDERS:]

    @property
    def block_size(self) -> int:
        return int(self.tokens.shape[1])

    def find(self, namespace: Namespace, tokens: Int32, limit: int) -> Path:
        """The longest known path along these tokens, of at most `limit` blocks. Changes nothing."""
        root = self.roots.get(namespace, NOTHING)
        return Path(_NONE, root) if root == NOTHING or not limit else self.follow(root, tokens, limit)

    def follow(self, end: int, tokens: Int32, limit: int) -> Path:
        """The longest known way from a path along these tokens, of at most `limit` blocks."""
        bs, nodes, fields = self.block_size, np.empty(limit, np.int64), self._journal.reading
        count = calls.follow(fields, end, tokens, nodes)
        while count < limit and self._others:
            parent, block = int(nodes[count - 1]) if count else end, tokens[count * bs : (count + 1) * bs]
            if self.first_child[parent] == NOTHING:
                break
            child = self._other(parent, block, self._hash(_name(parent), block.tobytes()))
            if child == NOTHING:
                break
            nodes[count] = child
            count += 1
            count += calls.follow(fields, child, tokens[count * bs :], nodes[count:])
        return Path(nodes[:count], int(nodes[count - 1]) if count else end)

    def root(self, namespace: Namespace) -> int:
        """The empty path of a namespace, made if it is not known. The caller holds what it keeps.

        Namespaces are the same if they are equal, as keys of a dictionary are: 1, 1.0 and True are one namespace.
        """
        if namespace not in self.roots:
            repr(namespace).encode()  # which events will want: if it raises, then here
            self._see_to_nodes()
            root = calls.make_root(self._journal.fields())
            self._journal.set(self._namespace, root, namespace)
            self._journal.set(self.roots, namespace, root)
        return self.roots[namespace]

    def child(self, parent: int, tokens: Int32) -> int:
        """The path that goes on from `parent` with the tokens of one block, if it is known. If not, OTHERS: the loop
        that asks will make it next, and it will be found then."""
        first, digest = self.first_child[parent], b""
        if first != NOTHING:
            digest = self._hash(_name(parent), tokens.tobytes())
            known = self._other(parent, tokens, digest)
            if known != NOTHING:
                return known
        self._see_to_nodes()
        if first >= 0:
            links, count = self._journal.memory.links, self._journal.counters[NUM_NODES_UNUSED]
            self._enter(int(links[count - 1, NODE_STACK]), digest)
        return OTHERS

    def hold(self, node: int) -> None:
        """One user more."""
        calls.use(self._journal.fields(), node)

    def drop(self, node: int) -> None:
        """One user fewer. A path that nobody needs is forgotten, and its ancestors with it if nobody needs them."""
        calls.drop(self._journal.fields(), node)
        if self._journal.counters[UNSETTLED]:
            self.settle()

    def settle(self) -> None:
        """Paths have been forgotten: namespaces and digests forget them, too."""
        counters = self._journal.counters
        top = counters[NUM_NODES_UNUSED]
        for node in self._journal.memory.links[top - counters[GONE] : top, NODE_STACK].tolist():
            self._unlink(node)
        counters[GONE] = counters[UNSETTLED] = 0

    def ancestor(self, node: int, generations: int) -> int:
        """The path that many blocks shorter."""
        for _ in range(generations):
            node = int(self.parent[node])
        return node

    def path_of(self, node: int) -> tuple[Namespace, Int32]:
        """The path of a node, spelled out."""
        nodes: list[int] = []
        while self.parent[node] != NOTHING:
            nodes.append(node)
            node = int(self.parent[node])
        return self._namespace[node], self.tokens[nodes[::-1]].reshape(-1)

    def path_digest(self, node: int) -> bytes:
        """What events call a path: a digest chained from its namespace on."""
        known, unnamed = self._path_digest, []
        while node not in known and self.parent[node] != NOTHING:
            unnamed.append(node)
            node = int(self.parent[node])
        digest = known[node] if node in known else namespace_digest(self._hash, self._namespace[node])
        for each in reversed(unnamed):
            digest = self._hash(digest, self.tokens[each].tobytes())
            self._journal.set(known, each, digest)
        return digest

    def finds(self, node: int) -> bool:
        """A path is found from the one before it, or from its namespace."""
        parent = int(self.parent[node])
        if parent == NOTHING:
            return self.roots.get(self._namespace[node]) == node
        tokens = self.tokens[node]
        if self.first_child[parent] == node:
            return True
        return self._other(parent, tokens, self._hash(_name(parent), tokens.tobytes())) == node

    def nodes(self) -> list[int]:
        """All paths, the empty ones too."""
        stack = self._journal.memory.links[: self._journal.counters[NUM_NODES_UNUSED], NODE_STACK]
        unused = set(stack.tolist())
        return [node for node in range(len(self.tokens)) if node not in unused]

    def below(self, nodes: Iterable[int]) -> list[int]:
        """These paths and all that begin with one of them, in O(all paths)."""
        children, found, more = defaultdict[int, list[int]](list), dict[int, None](), list(nodes)
        for node in self.nodes():
            children[int(self.parent[node])].append(node)
        while more:
            node = more.pop()
            if node not in found:
                found[node] = None
                more += children[node]
        return list(found)

    def copy(self, journal: Journal) -> "PathTree":
        """The same paths, over a copy of the memory."""
        twin = twin_of(self)
        twin._journal = journal
        return twin

    def _column(self, number: int) -> Int32:
        column: Int32 = self._journal.memory.links[:, number]
        return column

    def _see_to_nodes(self) -> None:
        """There is a node to be made."""
        counters, memory = self._journal.counters, self._journal.memory
        if counters[NUM_NODES_UNUSED]:
            return
        count = len(memory.spelled)
        links = enlarged(memory.links, 2 * count, memory.links.shape[1])
        links[count:, HOLDERS:] = NOTHING
        links[:count, NODE_STACK] = np.arange(2 * count - 1, count - 1, -1)
        self._journal.replace(
            links=links,
            spelled=enlarged(memory.spelled, 2 * count, self.block_size),
        )
        counters[NUM_NODES_UNUSED] = count

    def _other(self, parent: int, tokens: Int32, digest: bytes) -> int:
        """The child with these tokens, and this digest, that is not the first one; or NOTHING."""
        node = self._others.get(digest, NOTHING)
        while node != NOTHING and not (self.parent[node] == parent and (self.tokens[node] == tokens).all()):
            node = self._twin.get(node, NOTHING)
        return node

    def _enter(self, child: int, digest: bytes) -> None:
        """A new path can be found from its parent, which has another first child."""
        twin = self._others.get(digest, NOTHING)
        if twin != NOTHING:
            self._journal.set(self._twin, child, twin)
        self._journal.set(self._others, digest, child)
        self._journal.set(self._digest, child, digest)

    def _unlink(self, node: int) -> None:
        """Nobody finds this node any more."""
        if node in self._path_digest:
            self._journal.delete(self._path_digest, node)
        if node in self._digest:
            self._unlink_other(node)
        elif node in self._namespace:
            self._journal.delete(self.roots, self._namespace[node])
            self._journal.delete(self._namespace, node)

    def _unlink_other(self, node: int) -> None:
        digest, after, before = self._digest[node], self._twin.get(node, NOTHING), NOTHING
        each = self._others[digest]
        while each != node:
            before, each = each, self._twin[each]
        if after != NOTHING:
            self._journal.delete(self._twin, node)
        chain, key = (self._twin, before) if before != NOTHING else (self._others, digest)
        if after == NOTHING:
            self._journal.delete(chain, key)
        else:
            self._journal.set(chain, key, after)
        self._journal.delete(self._digest, node)


_NONE = np.empty(0, np.int64)


def _name(node: int) -> bytes:
    """What the hash calls a parent."""
    return node.to_bytes(8, "little")


def are_same(one: Namespace, other: Namespace) -> bool:
    """As keys of a dictionary are: also what is not equal to itself."""
    return one is other or one == other
