"""Traces, an aside. Named token streams, so that long workloads and their shared prefixes stay small in a trace.

A stream is an endless sequence of pseudo-random tokens that its name alone determines, so two requests with the first
1,024 tokens of "system" share them, and tokens of two names practically never agree. Token `i` of a stream is

    splitmix64(k + i * 0x9E3779B97F4A7C15) >> 33        k = the 8 bytes of blake2b(name), little-endian

in arithmetic modulo 2**64, where `splitmix64` is the output function of Steele, Lea and Flood, "Fast splittable
pseudorandom number generators" (OOPSLA 2014). Tokens lie in [0, 2**31).

>>> stream_tokens("u1", 0, 3)
(1878036800, 2038327934, 1799336478)
>>> stream_tokens("u1", 0, 3)[1:] == stream_tokens("u1", 1, 2)
True
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from pagedkv.spec.words import Misuse, Token

MAX_COUNT = 2**24
"""Tokens that one use of a stream may expand to: a slip in a trace should not fill the memory."""
MAX_STREAMED = 2**25
"""Tokens that all streams of one trace may expand to."""


@dataclass(frozen=True)
class Stream:
    """`count` tokens of the stream called `stream`, from index `start` on."""

    stream: str
    start: int
    count: int


class Streamed(tuple[Token, ...]):
    """Tokens, which also remember as what `parts` (tokens and streams, in order) they are to be written.

    >>> Streamed((7, Stream("u1", 0, 0), 8))
    (7, 8)
    """

    parts: tuple[Token | Stream, ...]

    def __new__(cls, parts: tuple[Token | Stream, ...]) -> "Streamed":
        self = super().__new__(cls, (token for part in parts for token in _expand(part)))
        self.parts = parts
        return self


def _expand(part: Token | Stream) -> tuple[Token, ...]:
    return stream_tokens(part.stream, part.start, part.count) if isinstance(part, Stream) else (part,)


def stream_tokens(name: str, start: int, count: int) -> tuple[Token, ...]:
    """Tokens `start` to `start + count - 1` of the stream called `name`."""
    key = int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
    first = (key + start * 0x9E3779B97F4A7C15) % 2**64
    z = np.uint64(first) + np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return tuple(((z ^ (z >> np.uint64(31))) >> np.uint64(33)).tolist())


def check_streamed(lines: Iterable[object], already: int = 0) -> int:
    """Tokens that the streams of lines (JSON values) expand to, plus `already`; too many for a trace is misuse."""
    for line in lines:
        ops = line.get("ops") if isinstance(line, dict) else ()
        for row in (line, *(ops if isinstance(ops, list) else ())):
            tokens = row.get("tokens") if isinstance(row, dict) else ()
            for part in tokens if isinstance(tokens, list) else (tokens,):
                count = part.get("count") if isinstance(part, dict) else 0
                if isinstance(count, int | float) and count > 0:
                    already += int(min(count, MAX_COUNT + 1))  # one stream that is too long is named where it is read
        if already > MAX_STREAMED:
            raise Misuse("tokens of all streams", already, f"at most {MAX_STREAMED} in one trace")
    return already
