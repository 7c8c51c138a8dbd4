"""Chapter 17. Masks: what a row of the query sees, and how its logits are bent.

A request of length n brings the queries of its last m positions, so row r stands at position i = n - m + r. All masks
are bottom-right aligned: they count from there. What a row sees is always one run of positions, so it is given as a
`range`, and attention selects it. A position that is not selected is not multiplied by zero but absent, and whatever
lies there (NaN too) cannot change a bit.

The positions that a pool keeps before its window (`Config.sink_tokens`, chapter 6) would be a second run: no mask here
has them. The learned `sinks` of attention are logits, not positions.

`softcap` and `alibi` change logits and hide nothing; in attention the cap comes first (Press et al., "Train Short, Test
Long", ICLR 2022, §3; Gemma Team, "Gemma 2", 2024, §2).
"""

import numpy as np

from pagedkv.spec.arrays import Array
from pagedkv.spec.words import Misuse


def row_positions(rows: int, length: int) -> range:
    """The positions of the rows of a request. Rows before its beginning (rows > length) stand at negative ones.

    >>> row_positions(2, 5)
    range(3, 5)
    """
    return range(length - rows, length)


def seen(position: int, length: int, *, causal: bool = True, window: int | None = None) -> range:
    """The positions in 0..length-1 that the row at `position` sees; empty if it sees nothing.

    Causal: none after its own. A window counts the row itself, so that a causal row sees the `window` positions
    position-window+1..position; without causality it reaches as far forward as back, |position - j| < window.

    >>> seen(4, 9), seen(4, 9, window=3), seen(4, 9, causal=False, window=3), seen(4, 9, causal=False)
    (range(0, 5), range(2, 5), range(2, 7), range(0, 9))
    >>> len(seen(-1, 9))
    0
    """
    if window is not None and window < 1:
        raise Misuse("window", window, "an integer >= 1, or None for all positions")
    first, end = 0, length
    if causal:
        end = min(end, position + 1)
    if window is not None:
        first, end = max(first, position - window + 1), min(end, position + window)
    return range(first, max(first, end))


def softcap(logits: Array, cap: float) -> Array:
    """cap * tanh(logits / cap): the identity near 0, never beyond ±cap. A cap of 0 caps nothing.

    >>> softcap(np.array([0.0, 1e4]), 30.0).tolist(), softcap(np.array([1e4]), 0.0).tolist()
    ([0.0, 30.0], [10000.0])
    """
    if not cap >= 0:
        raise Misuse("softcap", cap, "a number >= 0; 0 caps nothing")
    return logits if cap == 0 else np.asarray(cap * np.tanh(logits / cap))


def alibi(slopes: Array, position: int, positions: range) -> Array:
    """The bias slope * (j - position), (num_q_heads, len(positions)) float64: 0 for the row itself, falling back.

    >>> alibi(np.array([0.5]), 3, range(2, 4)).tolist()
    [[-0.5, 0.0]]
    """
    return np.asarray(np.asarray(slopes, dtype=np.float64)[:, None] * (np.asarray(positions) - position))
