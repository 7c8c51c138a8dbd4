"""Paths: what full blocks hold, as a tree.

What a full block holds is its *path*: the namespace and all tokens up to the block's end. Paths form a tree, and a
*node*, a small integer, is one path: its parent is the path one block shorter.

Most paths have one child, and it is found by following a pointer and comparing tokens: many blocks at once, with no
hash at all. Only where paths part is a hash needed: further children are found by a keyed 128-bit digest of the
parent and the block's tokens, and compared too. So a collision can never cause a wrong hit, nor even a miss, and a
prompt costs a digest for each place where it leaves the beaten track, not one for each block.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from pagedkv.optimized.arguments import Int32, Int64
from pagedkv.optimized.copying import twin_of
from pagedkv.optimized.hashing import HashFunction, namespace_digest
from pagedkv.optimized.journal import Journal, doubled
from pagedkv.spec.words import Namespace

NOTHING: Final = -1
"""No node, no block, no entry."""
OTHERS: Final = -2
"""No first child, but perhaps others."""


class Path(NamedTuple):
    """Part of a path, downwards."""

    nodes: Int64
    """(num_blocks,)"""
    end: int
    """The last of them, or where it started."""


class PathTree:
    """The paths that somebody needs: a block that holds one, a longer path, or a request whose computed blocks end
    there. Per node, (capacity,) each: `parent`, `first_child` (or NOTHING, or OTHERS), `users` int32; `tokens`
    (capacity, block_size) int32; `blocks` (capacity, num_groups) int32, which the prefix index keeps: what block holds
    the path in each cache group, or NOTHING."""

    def __init__(self, block_size: int, num_groups: int, hash_function: HashFunction, journal: Journal) -> None:
        self.block_size, self._hash, self._journal = block_size, hash_function, journal
        self.parent, self.first_child, self.users = (np.zeros(64, np.int32) for _ in range(3))
        self.tokens: Int32 = np.zeros((64, block_size), np.int32)
        self.blocks: Int32 = np.full((64, num_groups), NOTHING, np.int32)
        self.roots: dict[Namespace, int] = {}
        self._namespace: dict[int, Namespace] = {}  # of each empty path
        self._others: dict[bytes, int] = {}  # children that are not first, by digest; those of one digest are twins
        self._twin: dict[int, int] = {}
        self._digest: dict[int, bytes] = {}  # by which each of them is found
        self._path_digest: dict[int, bytes] = {}  # of paths that events have named
        self._unused: Int32 = np.arange(63, -1, -1, dtype=np.int32)  # a stack of nodes
        self._num_unused = 64

    def find(self, namespace: Namespace, tokens: Int32, limit: int) -> Path:
        """The longest known path along these tokens, of at most `limit` blocks. Changes nothing."""
        root = self.roots.get(namespace, NOTHING)
        return self.follow(root, tokens, limit if root != NOTHING else 0)

    def follow(self, end: int, tokens: Int32, limit: int) -> Path:
        """The longest known way from a path along these tokens, of at most `limit` blocks."""
        bs, nodes = self.block_size, list[int]()
        while len(nodes) < limit:
            start = len(nodes)
            nodes += self._line(end, tokens[start * bs : limit * bs])
            if len(nodes) == start:
                child = self._other(end, tokens[start * bs : (start + 1) * bs])
                if child == NOTHING:
                    break
                nodes.append(child)
            end = nodes[-1]
        return Path(np.array(nodes, np.int64) if nodes else _NONE, end)

    def root(self, namespace: Namespace) -> int:
        """The empty path of a namespace, made if it is not known. The caller holds what it keeps.

        Namespaces are the same if they are equal, as keys of a dictionary are: 1, 1.0 and True are one namespace.
        """
        if namespace not in self.roots:
            repr(namespace)  # which events will want: if it raises, then here
            root = int(self._new(1)[0])
            self.parent[root], self.first_child[root], self.users[root] = NOTHING, NOTHING, 0
            self._journal.set(self._namespace, root, namespace)
            self._journal.set(self.roots, namespace, root)
        return self.roots[namespace]

    def extend(self, start: int, tokens: Int32) -> Path:
        """Go on from a path along the full blocks of `tokens`: what is not known of the way is made. One user of
        `start` becomes a user of the end."""
        bs = self.block_size
        count = len(tokens) // bs
        known, end = self.follow(start, tokens, count) if self.first_child[start] != NOTHING else Path(_NONE, start)
        if end != start:  # the longer path, or the caller, uses this one
            self._journal.put(self.users, end, self.users[end] + 1)
            self._journal.put(self.users, start, self.users[start] - 1)
        if len(known) == count:
            return Path(known, end)
        made = self._new(count - len(known))
        parents = np.empty_like(made)
        parents[0], parents[1:] = end, made[:-1]
        self._fill(made, parents, tokens[len(known) * bs : count * bs].reshape(-1, bs))
        self.first_child[parents[1:]] = made[1:]
        self._enter(end, int(made[0]))
        return Path(np.concatenate((known, made)) if len(known) else made, int(made[-1]))

    def extend_each(self, starts: Int64, tokens: Int32) -> Int64:
        """One block further, tokens[i] of (count, block_size), from each of these distinct paths, which have no
        children. One user of each becomes a user of its new end."""
        made = self._new(len(starts))
        self._fill(made, starts, tokens)
        self._journal.note(self.first_child, starts, NOTHING)
        self.first_child[starts] = made
        return made

    def hold(self, nodes: Int64 | int) -> None:
        """One user more for each of these distinct nodes."""
        users = self.users[nodes]
        self._journal.note(self.users, nodes, users)
        self.users[nodes] = users + 1

    def drop(self, nodes: Iterable[int]) -> None:
        """One user fewer for each. A path that nobody needs is forgotten, and its ancestors with it if nobody needs
        them."""
        users, parent, gone = self.users.data, self.parent.data, list[int]()
        note = self._journal.note
        for each in nodes:
            node = each
            while node != NOTHING:
                left = users[node] - 1
                note(users, node, left + 1)
                users[node] = left
                if left:
                    break
                self._unlink(node)
                gone.append(node)
                node = parent[node]
        if gone:
            self._give_back(gone)

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
        unnamed = []
        while node not in self._path_digest and self.parent[node] != NOTHING:
            unnamed.append(node)
            node = int(self.parent[node])
        digest = self._path_digest.get(node) or namespace_digest(self._hash, self._namespace[node])
        for each in reversed(unnamed):
            digest = self._hash(digest, self.tokens[each].tobytes())
            self._journal.set(self._path_digest, each, digest)
        return digest

    def nodes(self) -> list[int]:
        """All paths, the empty ones too."""
        unused = set(self._unused[: self._num_unused].tolist())
        return [node for node in range(len(self.parent)) if node not in unused]

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
        """The same paths, with a journal of its own."""
        twin = twin_of(self)
        twin._journal = journal
        return twin

    def _line(self, end: int, tokens: Int32) -> list[int]:
        """As far as first children of first children go along these tokens."""
        bs, nodes, child = self.block_size, list[int](), int(self.first_child[end])
        if child < 0 or self.tokens[child].tobytes() != tokens[:bs].tobytes():
            return nodes
        first_child = self.first_child.data
        for _ in range(len(tokens) // bs):
            nodes.append(child)
            child = first_child[child]
            if child < 0:
                break
        same = self.tokens.take(nodes, axis=0).reshape(-1) == tokens[: len(nodes) * bs]
        different = int(same.argmin())
        return nodes if same[different] else nodes[: different // bs]

    def _other(self, parent: int, tokens: Int32) -> int:
        """The child with these tokens that is not the first one, or NOTHING."""
        if self.first_child[parent] == NOTHING:
            return NOTHING
        node = self._others.get(self._hash(_name(parent), tokens.tobytes()), NOTHING)
        while node != NOTHING and not (self.parent[node] == parent and (self.tokens[node] == tokens).all()):
            node = self._twin.get(node, NOTHING)
        return node

    def _new(self, count: int) -> Int64:
        """So many nodes. No operation makes a path after it has forgotten one, so that what they hold needs no note."""
        while self._num_unused < count:
            self._more_nodes()
        self._num_unused -= count
        return self._unused[self._num_unused : self._num_unused + count].astype(np.int64)

    def _more_nodes(self) -> None:
        count = len(self.parent)
        for name in ("parent", "first_child", "users", "tokens", "blocks", "_unused"):
            setattr(self, name, doubled(getattr(self, name)))
        self.blocks[count:] = NOTHING
        self._unused[self._num_unused : self._num_unused + count] = np.arange(2 * count - 1, count - 1, -1)
        self._num_unused += count

    def _fill(self, nodes: Int64, parents: Int64, tokens: Int32) -> None:
        """What new paths are. Each has one user: the path that goes on from it, or the caller."""
        self.parent[nodes], self.tokens[nodes] = parents, tokens
        self.first_child[nodes], self.users[nodes] = NOTHING, 1

    def _enter(self, parent: int, child: int) -> None:
        """A new path can be found from its parent."""
        if self.first_child[parent] < 0:
            self._journal.put(self.first_child, parent, child)
            return
        digest = self._hash(_name(parent), self.tokens[child].tobytes())
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
        else:
            self._journal.put(self.first_child, self.parent[node], OTHERS)

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

    def _give_back(self, nodes: Sequence[int]) -> None:
        """These nodes may become other paths."""
        end = self._num_unused + len(nodes)
        self._journal.put(self._unused, slice(self._num_unused, end), nodes)
        self._num_unused = end


_NONE: Final = np.empty(0, np.int64)


def _name(node: int) -> bytes:
    """What the hash calls a parent."""
    return node.to_bytes(8, "little")
