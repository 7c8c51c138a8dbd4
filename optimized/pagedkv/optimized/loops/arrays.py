"""The types of arrays, and the largest number in most of them."""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]

MAX_INT32: Final = 2**31 - 1
"""The largest token id, block id and length: tables, lengths and tokens are int32, as kernels read them."""
