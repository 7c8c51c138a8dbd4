"""Random programs, one operation at a time, chosen with the state in view.

Most operations are such that they can be carried out: for a fork a parent is picked that is computed, for a resume a
request that is preempted. A few are picked without a look at the state (`undirected`): unknown names, empty texts,
lengths out of range. Refusals come by themselves, since pools are small. Prompts continue what is known, so that
prefixes are shared.
"""

from collections.abc import Callable, Mapping
from typing import Final

from pagedkv.conformance.programs.choosing import Chooser, chance, pick, text, weighted
from pagedkv.conformance.programs.plans import Plan, weights_of
from pagedkv.conformance.programs.undirected import undirected
from pagedkv.spec import (
    Admit, Append, Batch, BeginStep, Commit, EndStep, Evict, Fork, Free, Identity, Lookup, Operation, Permute, Pin,
    Preempt, Reserve, ResetPrefixIndex, Resume, Row, State, Token, Truncate, Unpin,
)  # fmt: skip
from pagedkv.spec.operations import rows_of
from pagedkv.spec.subject import Capabilities
from pagedkv.spec.words import Namespace

NAMES: Final = tuple("abcdefgh")
"""Ids of requests; the name of a request that is gone is used again."""
MOST_PINS: Final = 4
MOST_STEPS: Final = 3


def waiting(state: State) -> dict[str, int]:
    """Requests with planned writes that are not committed yet, and the length up to which they can be."""
    return {
        str(request): min(r.reserved, r.length)
        for request, r in state.requests.items()
        if r.residency == "resident" and r.computed < min(r.reserved, r.length)
    }


def may_follow(state: State, operation: Operation) -> bool:
    """Whether an engine would run this now. One that publishes at schedule time lets others hit what is still to be
    written, so until all planned writes are committed it only plans more of them."""
    if state.config.publish == "commit" or not waiting(state):
        return True
    return all(isinstance(row, Admit | Append | Reserve | Lookup | Commit) for row in rows_of(operation))


class Programmer:
    """Chooses the next operation of a program."""

    def __init__(self, chooser: Chooser, plan: Plan, capabilities: Capabilities) -> None:
        self.chooser, self.plan, self.capabilities = chooser, plan, capabilities
        weights = weights_of(capabilities)
        self.kinds, self.weights = [*weights], [*weights.values()]

    def next(self, state: State) -> Operation:
        """An operation that may follow."""
        for _ in range(4):
            if chance(self.chooser, 1, 16):
                operation: Operation | None = self.blindly(state)
            else:
                operation = MAKE[self.kinds[weighted(self.chooser, self.weights)]](self, state)
            if operation is not None and may_follow(state, operation):
                return operation
        return _commit(self, state) or _append(self, state) or _admit(self, state) or Free(NAMES[0])

    def blindly(self, state: State) -> Operation:
        """An undirected operation, perhaps as a row among others that are right."""
        operation = undirected(self.chooser, state, self.plan, self.capabilities, NAMES)
        if not isinstance(operation, Append | Commit | Reserve | Free) or not self.capabilities.batch:
            return operation
        rows = self.rows(state, type(operation).__name__.lower())
        place = self.chooser.integer(0, len(rows))
        return Batch((*rows[:place], operation, *rows[place:])) if rows and chance(self.chooser, 1, 2) else operation

    def resident(self, state: State) -> list[str]:
        """Names of the resident requests, the latest first."""
        return [str(name) for name in reversed(state.requests) if state.requests[name].residency == "resident"]

    def unused(self, state: State) -> str | None:
        """A name for a new request."""
        return next((name for name in NAMES if name not in state.requests), None)

    def known_text(self, state: State) -> Identity:
        """The beginning of a text that was seen before, in its namespace or sometimes in another one."""
        known = [*state.entries.values(), *(Identity(r.namespace, r.tokens) for r in state.requests.values())]
        first, second = self.plan.namespaces
        if not known:
            return Identity(first, ())
        namespace, tokens = pick(self.chooser, known)
        kept = len(tokens)
        if chance(self.chooser, 1, 2):
            kept = self.chooser.integer(0, kept)
        if chance(self.chooser, 1, 8):
            namespace = first if namespace == second else second
        return Identity(namespace, tokens[:kept])

    def prompt(self, state: State) -> tuple[tuple[Token, ...], Namespace]:
        """At least one token. Mostly what was seen before, with something new at its end."""
        bs, blocks = state.config.block_size, state.config.num_blocks
        new_text = Identity(self.plan.namespaces[0], ())
        namespace, known = self.known_text(state) if chance(self.chooser, 3, 4) else new_text
        most = bs * blocks + 1 if chance(self.chooser, 1, 16) else bs * min(4, blocks - blocks // 2)
        new = self.chooser.integer(0, max(0, most - len(known)))
        return (known + text(self.chooser, new)) or (0,), namespace

    def rows(self, state: State, kind: str) -> list[Row]:
        """Rows for most of the requests that they fit, in any order; sometimes two for one request."""
        if kind == "commit":
            fitting = list(waiting(state))
        else:
            fitting = self.resident(state) if kind != "free" else [str(name) for name in state.requests]
        if kind == "free" or chance(self.chooser, 1, 4):
            fitting = [name for name in fitting if not chance(self.chooser, 1, 2)]
        if fitting:
            first = self.chooser.integer(0, len(fitting) - 1)
            fitting = fitting[first:] + fitting[:first]
        rows: list[Row] = [_row(self, state, kind, name) for name in fitting]
        if rows and kind != "free" and chance(self.chooser, 1, 4):
            again = _row(self, state, kind, fitting[0])
            later = isinstance(again, Commit) and Commit(fitting[0], waiting(state)[fitting[0]])
            rows.append(later or again)
        return rows


def _row(programmer: Programmer, state: State, kind: str, request: str) -> Row:
    r, bs = state.requests[request], state.config.block_size
    match kind:
        case "append":
            room = max(1, state.config.num_blocks * bs - r.length)  # one more than fits is tried, many more are not
            most = programmer.chooser.integer(1, 2 * bs + 1) if chance(programmer.chooser, 1, 3) else 1
            return Append(request, text(programmer.chooser, min(room, most)))
        case "reserve":
            low = min(r.reserved, r.length)
            most = min(max(r.length, r.reserved) + bs, max(low, state.config.num_blocks * bs)) + 1
            return Reserve(request, programmer.chooser.integer(max(1, low), most))
        case "commit":
            last = min(r.reserved, r.length)
            return Commit(
                request, programmer.chooser.integer(r.computed, last) if chance(programmer.chooser, 1, 4) else last
            )
        case _:
            return Free(request)


def _of(programmer: Programmer, state: State, kind: str) -> Operation | None:
    names = programmer.resident(state)
    return _row(programmer, state, kind, pick(programmer.chooser, names)) if names else None


def _append(programmer: Programmer, state: State) -> Operation | None:
    return _of(programmer, state, "append")


def _reserve(programmer: Programmer, state: State) -> Operation | None:
    return _of(programmer, state, "reserve")


def _commit(programmer: Programmer, state: State) -> Operation | None:
    names = list(waiting(state))
    return _row(programmer, state, "commit", pick(programmer.chooser, names)) if names else None


def _free(programmer: Programmer, state: State) -> Operation | None:
    return Free(pick(programmer.chooser, list(state.requests))) if state.requests else None


def _admit(programmer: Programmer, state: State) -> Operation | None:
    name = programmer.unused(state)
    if name is None:
        return None
    tokens, namespace = programmer.prompt(state)
    if programmer.capabilities.reserve and chance(programmer.chooser, 1, 4):
        return Admit(name, tokens, namespace, programmer.chooser.integer(0, len(tokens)))
    return Admit(name, tokens, namespace)


def _fork(programmer: Programmer, state: State) -> Operation | None:
    ready = [
        name for name in programmer.resident(state) if state.requests[name].computed == state.requests[name].length
    ]
    child = programmer.unused(state)
    if child is None:
        return None
    return Fork(pick(programmer.chooser, ready), child) if ready else _commit(programmer, state)


def _truncate(programmer: Programmer, state: State) -> Operation | None:
    names = programmer.resident(state)
    if not names:
        return None
    request = pick(programmer.chooser, names)
    return Truncate(request, programmer.chooser.integer(1, state.requests[request].length))


def _preempt(programmer: Programmer, state: State) -> Operation | None:
    names, can = programmer.resident(state), programmer.capabilities
    if not names:
        return None
    swap = can.swap and (not can.preempt or chance(programmer.chooser, 1, 2))
    return Preempt(pick(programmer.chooser, names), "swap" if swap else "recompute")


def _resume(programmer: Programmer, state: State) -> Operation | None:
    names = [name for name, r in state.requests.items() if r.residency != "resident"]
    return Resume(pick(programmer.chooser, names)) if names else None


def _lookup(programmer: Programmer, state: State) -> Operation | None:
    return Lookup(*programmer.prompt(state))


def _pin(programmer: Programmer, state: State) -> Operation | None:
    if sum(map(len, state.pins.values())) >= MOST_PINS:
        return None
    namespace, tokens = programmer.known_text(state)
    return Pin(tokens, namespace)


def _unpin(programmer: Programmer, state: State) -> Operation | None:
    if not state.pins:
        return None
    pinned = pick(programmer.chooser, list(state.pins))
    return Unpin(pinned.tokens, pinned.namespace)


def _begin_step(programmer: Programmer, state: State) -> Operation | None:
    unused = [f"s{i}" for i in range(MOST_STEPS) if f"s{i}" not in state.steps]
    return BeginStep(unused[0]) if state.config.overlapped_steps and unused else None


def _end_step(programmer: Programmer, state: State) -> Operation | None:
    return EndStep(pick(programmer.chooser, list(state.steps))) if state.steps else None


def _permute(programmer: Programmer, state: State) -> Operation | None:
    return None if state.steps else Permute(programmer.chooser.integer(0, 1023))


def _batch(programmer: Programmer, state: State) -> Operation | None:
    kinds = [kind for kind in ("append", "commit", "reserve") if kind != "reserve" or programmer.capabilities.reserve]
    kind = "free" if chance(programmer.chooser, 1, 16) else pick(programmer.chooser, kinds)
    rows = programmer.rows(state, kind)
    return Batch(tuple(rows)) if rows else None


MAKE: Final[Mapping[str, Callable[[Programmer, State], Operation | None]]] = {
    "admit": _admit, "append": _append, "commit": _commit, "free": _free, "reserve": _reserve, "fork": _fork,
    "truncate": _truncate, "preempt": _preempt, "resume": _resume, "lookup": _lookup, "pin": _pin, "unpin": _unpin,
    "evict": lambda programmer, state: Evict(programmer.chooser.integer(0, 3)),
    "reset_prefix_index": lambda programmer, state: ResetPrefixIndex(),
    "begin_step": _begin_step, "end_step": _end_step, "permute": _permute, "batch": _batch,
}  # fmt: skip
"""Each kind's way to choose; None: there is nothing of that kind to do now."""
