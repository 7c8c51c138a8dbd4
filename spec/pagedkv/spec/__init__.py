"""The specification of PagedAttention, in the order in which it reads.

Meaning and paging (no arrays): `words`, `misuse`, `meaning`, `state`, `blocks`, `prefix`, `window`, `admission`,
`growth`, `sharing`, `residency`, `operations`, `program`, `refinement`, `frame`, `subject`. Arrays: `content`,
`arrays`, `masks`, `attention`, `rounding`, `bound`, `attention_subject`. Exchange: `trace`. Worked examples:
`examples`, `demonstration`.

Each chapter is a module that reads from top to bottom: what and why, then words, then rules, then laws. Everything is
executable: the examples in the text are run by the tests, and every implementation is held against these functions.
"""

from pagedkv.spec.admission import admit
from pagedkv.spec.blocks import CANONICAL, Choices, IllegalChoice, available
from pagedkv.spec.growth import append, commit, reserve
from pagedkv.spec.operations import (
    Admit, Append, Attend, Batch, BeginStep, Commit, EndStep, Evict, Fork, Free, Lookup, Operation, Permute, Pin,
    Preempt, Reserve, ResetPrefixIndex, Resume, Row, Truncate, Unpin,
)  # fmt: skip
from pagedkv.spec.prefix import evict, lookup, pin, reset_prefix_index, unpin
from pagedkv.spec.program import apply, batch, permutation
from pagedkv.spec.refinement import INVARIANTS, alpha, broken
from pagedkv.spec.residency import begin_step, end_step, permute, preempt, resume
from pagedkv.spec.sharing import fork, free, truncate
from pagedkv.spec.state import Request, State, Transition
from pagedkv.spec.words import (
    HOLE, Block, Config, Copy, Identity, Misuse, Ok, Outcome, Reason, Refused, RequestId, Slot, Token, ceil_div,
)  # fmt: skip

__all__ = [
    "CANONICAL", "HOLE", "INVARIANTS", "Admit", "Append", "Attend", "Batch", "BeginStep", "Block", "Choices", "Commit",
    "Config", "Copy", "EndStep", "Evict", "Fork", "Free", "Identity", "IllegalChoice", "Lookup", "Misuse", "Ok",
    "Operation", "Outcome", "Permute", "Pin", "Preempt", "Reason", "Refused", "Request", "RequestId", "Reserve",
    "ResetPrefixIndex", "Resume", "Row", "Slot", "State", "Token", "Transition", "Truncate", "Unpin", "admit", "alpha",
    "append", "apply", "available", "batch", "begin_step", "broken", "ceil_div", "commit", "end_step", "evict", "fork",
    "free", "lookup", "permutation", "permute", "pin", "preempt", "reserve", "reset_prefix_index", "resume", "truncate",
    "unpin",
]  # fmt: skip
