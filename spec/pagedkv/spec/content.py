"""Chapter 15. Contents: what the KV of a position is, when no model computes it.

In a transformer the key and value of a position depend on all tokens up to it, and on the layer and the head. A test
needs the same dependence and none of the cost: here each K, V and q vector is a pure function of

    (seed, namespace, token path, layer, head, K or V or q)

and nothing else, so it can be checked wherever it lies and need not be stored in a trace. Two positions with the same
token after different beginnings differ; the same path gives the same bits in every request and on every machine.

A *digest* stands for the path: digest_p = mix(digest_{p-1}, token_p), 64 bits, begun from seed and namespace. `mix` is
splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014), and so is the
generator that turns a digest into numbers by counting. It is no hash against an adversary.

Law: a digest depends on the past alone, and paths that part stay apart.

>>> long, other = path_digests(0, "", [5, 6, 7]), path_digests(0, "", [4, 6, 7])
>>> bool((path_digests(0, "", [5, 6]) == long[:2]).all()), bool((long != other).all())
(True, True)
>>> int((extend_path(int(long[1]), [7]) == long[2:]).sum())  # one token later
1
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pagedkv.spec.words import Misuse, Namespace, Token

Kind: TypeAlias = Literal["key", "value", "query"]
Digests: TypeAlias = NDArray[np.uint64]

KINDS: dict[Kind, int] = {"key": 1, "value": 2, "query": 3}
GOLDEN = 0x9E3779B97F4A7C15
MASK = 2**64 - 1


def splitmix64(state: int) -> int:
    """The output function of splitmix64 in 0..2**64-1. A bijection.

    >>> hex(splitmix64(0x9E3779B97F4A7C15))
    '0xe220a8397b1dcdaf'
    """
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & MASK
    return state ^ (state >> 31)


def splitmix64_each(states: Digests) -> Digests:
    """`splitmix64` of each element of a uint64 array, which wraps by itself."""
    states = (states ^ (states >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    states = (states ^ (states >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return states ^ (states >> np.uint64(31))


def root_digest(seed: int, namespace: Namespace) -> int:
    """The digest of the empty path. A namespace is known by its `repr`, which must be the same in every process."""
    return int.from_bytes(blake2b(repr((seed, namespace)).encode(), digest_size=8).digest(), "little")


def extend_path(digest: int, tokens: Iterable[Token]) -> Digests:
    """The digests (len(tokens),) uint64 of the path with this digest, extended token by token."""
    digests = []
    for token in tokens:
        digest = splitmix64((digest * 3 + splitmix64((token + GOLDEN) & MASK)) & MASK)
        digests.append(digest)
    return np.array(digests, dtype=np.uint64)


def path_digests(seed: int, namespace: Namespace, tokens: Iterable[Token]) -> Digests:
    """The digest of each position of a token path, (len(tokens),) uint64."""
    return extend_path(root_digest(seed, namespace), tokens)


def vectors(digests: Digests, kind: Kind, num_heads: int, head_dim: int, layer: int = 0) -> NDArray[np.float32]:
    """The vectors (len(digests), num_heads, head_dim) float32 of positions, all positions at once.

    Each element is the sum of four 16-bit numbers, shifted and scaled to mean 0 and variance 1: close to normal, within
    ±3.47, and the same bits on every machine.

    >>> x = vectors(path_digests(0, "", range(500)), "key", num_heads=2, head_dim=64)
    >>> round(abs(float(x.mean())), 1), round(float(x.std()), 1), bool(abs(x).max() < 3.47)
    (0.0, 1.0, True)
    """
    if kind not in KINDS:
        raise Misuse("kind", kind, f"one of {', '.join(KINDS)}")
    stream = splitmix64_each(digests ^ np.uint64(splitmix64((KINDS[kind] + 4 * layer) * GOLDEN & MASK)))
    counter = np.arange(1, num_heads * head_dim + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    bits = splitmix64_each(stream[:, None] + counter)
    parts = [bits >> np.uint64(shift) & np.uint64(0xFFFF) for shift in (0, 16, 32, 48)]
    centred = sum(part.astype(np.int64) for part in parts) - 2 * 0xFFFF
    flat = np.asarray(centred).astype(np.float32) * np.float32(3**0.5 / 2**16)  # 18 bits are exact; one rounding
    return flat.reshape(len(digests), num_heads, head_dim)
