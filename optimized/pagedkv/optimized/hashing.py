"""Hashes of what blocks hold: keyed BLAKE2b, chained from block to block."""

import hashlib
import secrets
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from pagedkv.optimized.arguments import integer, token_array
from pagedkv.optimized.loops.arrays import Int32
from pagedkv.spec.words import Misuse, Namespace, check_id

DIGEST_SIZE: Final = 16
"""Bytes of a digest."""

HashFunction: TypeAlias = Callable[[bytes, bytes], bytes]
"""(what the parent is called, tokens of the block as int32 bytes) -> digest. Any collision is harmless, only slow."""


def keyed_hash(seed: bytes | None = None) -> HashFunction:
    """Keyed BLAKE2b of 128 bits. Without a seed the key is random, so that nobody outside can aim for collisions;
    processes that share a seed agree on the digests."""
    key = secrets.token_bytes(32) if seed is None else hashlib.blake2b(seed, digest_size=32).digest()
    keyed = hashlib.blake2b(digest_size=DIGEST_SIZE, key=key)

    def digest(parent: bytes, tokens: bytes) -> bytes:
        hasher = keyed.copy()
        hasher.update(parent + tokens)
        return hasher.digest()

    return digest


def namespace_digest(hash_function: HashFunction, namespace: Namespace) -> bytes:
    """The digest of the empty path of a namespace. `repr` tells digests apart, and only that: two namespaces that look
    alike share nothing, since paths are compared."""
    return hash_function(b"", repr(namespace).encode())


def chained(hash_function: HashFunction, parent: bytes, tokens: Int32, block_size: int) -> list[bytes]:
    """The digests of the full blocks of `tokens`, the first of which follows on a path with the digest `parent`."""
    data, stride, digests = tokens.tobytes(), block_size * np.dtype(np.int32).itemsize, list[bytes]()
    for end in range(stride, len(data) + 1, stride):
        parent = hash_function(parent, data[end - stride : end])
        digests.append(parent)
    return digests


def prefix_digests(tokens: object, block_size: int, hash_seed: bytes, namespace: Namespace = "") -> list[bytes]:
    """What a manager with this `hash_seed` calls the full blocks of a prompt in its events: the digest of each, 16
    bytes. `tokens` as for `admit`, `block_size` in tokens. Raises `Misuse`."""
    check_id("namespace", namespace)
    if not isinstance(hash_seed, bytes):
        raise Misuse("hash_seed", hash_seed, "bytes")
    function, size = keyed_hash(hash_seed), integer("block_size", block_size, 1)
    return chained(function, namespace_digest(function, namespace), token_array(tokens, 0), size)
