"""Named ways to break the optimized manager, each with the law that it breaks; conformance notices every one."""

from typing import Final

from tests.conformance.mutants.mutation import Mutant

from tests.conformance.broken_manager_blocks import CHAINS, GIVING_BACK, HOLDING, RELABELLING, SHARING
from tests.conformance.broken_manager_index import ENTERING, LEAVING, MATCHING
from tests.conformance.broken_manager_rows import BATCHES, REFUSING, ROWS, SWAPPING, WINDOWS

_BLOCKS: Final = (*SHARING, *GIVING_BACK, *CHAINS, *HOLDING, *RELABELLING)
_INDEX: Final = (*ENTERING, *LEAVING, *MATCHING)
_ROWS: Final = (*ROWS, *BATCHES, *REFUSING, *WINDOWS, *SWAPPING)

BROKEN_MANAGERS: Final[tuple[Mutant, ...]] = (*_BLOCKS, *_INDEX, *_ROWS)
