"""Named ways to break the reference manager; conformance notices every one.

`breaks` names the law. `needs` says what a run has to exercise before anything can be seen of it: a capability, an
option of the configuration, or "policy", for what only the order of eviction shows.
"""

from tests.conformance.mutants.mutation import Mutant

from tests.conformance.illegal_index import INDEX, TIME
from tests.conformance.illegal_ledger import ALLOCATION, SHARING

ILLEGAL: dict[str, Mutant] = {mutant.name: mutant for mutant in (*SHARING, *ALLOCATION, *INDEX, *TIME)}
"""By name. `ILLEGAL[name].load()` is the broken `BlockManager`."""
