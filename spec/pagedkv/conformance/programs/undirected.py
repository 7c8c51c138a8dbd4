"""Operations picked without a look at the state: any name, any number, any text.

Most of them are misuse, which must be an exception and change nothing; the others are legal by chance. Whatever a
generator that looks at the state would never think of is found here.
"""

from collections.abc import Sequence
from typing import Any, Final

from pagedkv.conformance.programs.choosing import Chooser, chance, pick, text
from pagedkv.conformance.programs.plans import Plan, weights_of
from pagedkv.spec import (
    Admit, Append, Batch, BeginStep, Commit, EndStep, Evict, Fork, Free, Lookup, Operation, Permute, Pin, Preempt,
    Reserve, ResetPrefixIndex, Resume, State, Token, Truncate, Unpin,
)  # fmt: skip
from pagedkv.spec.subject import Capabilities

ROWS: Final = ("append", "commit", "reserve", "free")


def undirected(
    chooser: Chooser, state: State, plan: Plan, capabilities: Capabilities, names: Sequence[str]
) -> Operation:
    """One operation of any kind that the subject has."""
    blind = _Blind(chooser, state, plan, names, capabilities)
    kinds = [*weights_of(capabilities)]
    kind = pick(chooser, kinds)
    if kind != "batch":
        return blind.operation(kind)
    of, mixed = [name for name in ROWS if name in kinds], chance(chooser, 1, 8)
    first = pick(chooser, of)
    rows: list[Any] = [blind.operation(pick(chooser, of) if mixed else first) for _ in range(chooser.integer(0, 4))]
    return Batch(tuple(rows))


class _Blind:
    def __init__(
        self, chooser: Chooser, state: State, plan: Plan, names: Sequence[str], capabilities: Capabilities
    ) -> None:  # fmt: skip
        self.chooser, self.state, self.partial = chooser, state, capabilities.reserve
        self.names, self.namespaces = [*names, "nobody"], plan.namespaces
        self.modes = ["discard", *["recompute"] * capabilities.preempt, *["swap"] * capabilities.swap]

    def name(self) -> str:
        """Known or not: half of the time one that is known, if there is one."""
        known = [str(request) for request in self.state.requests]
        return pick(self.chooser, known if known and chance(self.chooser, 1, 2) else self.names)

    def number(self, near: int) -> int:
        return pick(self.chooser, (near, near + 1, near - 1, 0, -1, 1, near + 1_000))

    def namespace(self) -> str:
        return pick(self.chooser, self.namespaces)

    def tokens(self) -> tuple[Token, ...]:
        return pick(self.chooser, (text(self.chooser, self.chooser.integer(0, 4)), (), (-1,), (0, -7)))

    def operation(self, kind: str) -> Operation:
        name, tokens = self.name(), self.tokens()
        r = self.state.requests.get(name)
        match kind:
            case "admit":
                return Admit(name, tokens, self.namespace(), self.number(len(tokens)) if self.partial else None)
            case "append":
                return Append(name, tokens)
            case "commit":
                return Commit(name, self.number(r.computed if r else 0))
            case "reserve":
                return Reserve(name, self.number(r.reserved if r else 0))
            case "truncate":
                return Truncate(name, self.number(r.length if r else 0))
            case "fork":
                return Fork(name, self.name())
            case "preempt":
                mode: Any = pick(self.chooser, self.modes)
                return Preempt(name, mode)
            case "resume":
                return Resume(name)
            case "free":
                return Free(name)
            case _:
                return self.of_the_pool(kind, tokens)

    def of_the_pool(self, kind: str, tokens: tuple[Token, ...]) -> Operation:
        match kind:
            case "lookup":
                return Lookup(tokens, self.namespace())
            case "pin":
                return Pin(tokens, self.namespace())
            case "unpin":
                pinned = [(pin.tokens, pin.namespace) for pin in self.state.pins]  # one in the wrong namespace, too
                tokens = pick(self.chooser, pinned)[0] if pinned and chance(self.chooser, 1, 2) else tokens
                return Unpin(tokens, self.namespace())
            case "evict":
                return Evict(self.number(0))
            case "reset_prefix_index":
                return ResetPrefixIndex()
            case "begin_step":
                return BeginStep(pick(self.chooser, ("s0", "s1", "s9")))
            case "end_step":
                return EndStep(pick(self.chooser, ("s0", "s1", "s9")))
            case _:
                return Permute(self.chooser.integer(0, 7))
