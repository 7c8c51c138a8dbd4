"""What an operation would take, without doing it."""

from pagedkv.optimized.admission import plan_entry
from pagedkv.optimized.arguments import hashable, integer, token_array
from pagedkv.optimized.loops import batches
from pagedkv.optimized.loops.arrays import MAX_INT32
from pagedkv.optimized.rows import SWAPPED
from pagedkv.optimized.state import ManagerState
from pagedkv.spec.operations import Admit, Append, Operation, Reserve, Resume
from pagedkv.spec.words import ceil_div


def blocks_needed(state: ManagerState, operation: Operation, *, external: int = 0, reads: bool = True) -> int:
    """By how much the operation would lower the number of available blocks if it were carried out now. `external` and
    `reads` of an admission."""
    rows = state.rows
    match operation:
        case Admit(request=request, tokens=tokens, namespace=namespace, reserve=reserve):
            rows.check_new("request", request)
            hashable("namespace", namespace)
            prompt = token_array(tokens)
            count = len(prompt) if reserve is None else integer("reserve", reserve, 0, len(prompt))
            external = integer("external", external, 0, len(prompt))
            return plan_entry(state, namespace, prompt, max(count, external), reads=reads).need
        case Append(request=request, tokens=tokens):
            row = rows.find_resident("request", request)
            return growth_needs(state, row, int(rows.length[row]) + len(token_array(tokens)))
        case Reserve(request=request, length=length):
            return growth_needs(state, rows.find_resident("request", request), integer("length", length, 1))
        case Resume(request=request):
            row = rows.find_preempted(request)
            info, length = rows.known(row), int(rows.length[row])
            if rows.state[row] == SWAPPED:
                assert info.saved is not None
                return len(info.saved)
            return plan_entry(state, info.namespace, rows.tokens[row, :length], length, reads=info.reads).need
        case _:
            return 0


def growth_needs(state: ManagerState, row: int, end: int) -> int:
    """Blocks that growth to `end` takes. Of a length that nobody can have, only that it is more than there are."""
    if end > MAX_INT32:
        return len(state.groups) * ceil_div(end, state.config.block_size)
    return batches.blocks_for(state.journal.reading, row, end)
