"""All records in one place, in the order of their bugs."""

from typing import Final

from tests.conformance.real_bugs.giving_back import GIVING_BACK
from tests.conformance.real_bugs.identity import COLLIDING, NAMING
from tests.conformance.real_bugs.index import ENTERING, LEAVING, MATCHING
from tests.conformance.real_bugs.keeping import EVICTING, HOLDING, RESETTING
from tests.conformance.real_bugs.records import Record
from tests.conformance.real_bugs.refusing import REFUSING
from tests.conformance.real_bugs.tables import MOVING, ROWS, SHARING

_INDEX: Final = (*ENTERING, *LEAVING, *MATCHING, *COLLIDING, *NAMING)
_BLOCKS: Final = (*GIVING_BACK, *REFUSING, *ROWS, *SHARING, *MOVING, *EVICTING, *HOLDING, *RESETTING)

RECORDS: Final[tuple[Record, ...]] = tuple(sorted((*_INDEX, *_BLOCKS), key=lambda record: record.bug))
"""One a bug that has a trace."""
