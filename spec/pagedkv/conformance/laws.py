"""The laws by name: everything that a block manager can be told to have broken.

A violation names one of these. A report that says which laws were kept has to know them all, and which of them a
subject could have broken at all: `applicable`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pagedkv.spec import Reason
from pagedkv.spec.subject import Capabilities


@dataclass(frozen=True)
class Law:
    """A law, and to which subjects it applies."""

    name: str
    needs: tuple[str, ...] = ()
    """What makes it apply, either of these: a capability, or several with spaces between. None: every subject."""
    unless: str = ""
    """The capability that puts a stricter law in its place."""


GROUPS: Final[Mapping[str, tuple[Law, ...]]] = {
    "answers": (
        Law("the answer is Ok or Refused, one a row"),
        Law("misuse is an exception"),
        Law("misuse raises Misuse, and nothing else is raised"),
        Law("misuse changes nothing"),
        Law("what is legal is no misuse"),
        Law("a subject can be observed"),
        Law("a subject that has copy can be copied"),
        Law("an operation ends within its limit"),
    ),
    "refusals": (
        Law("refusal is required when need > available"),
        Law("refusal is forbidden when need <= available"),
        Law(f"refusal is required: {Reason.UNSERVABLE}"),
        Law(f"refusal is required: {Reason.MAX_REQUESTS}"),
        Law(f"refusal is required: {Reason.RELEASED}", ("sliding_window truncate",)),
        Law(f"refusal is required: {Reason.PINNED}", ("pins",)),
        Law(f"refusal is required: {Reason.SWAP_SPACE}", ("swap",)),
        Law("the reason of a refusal"),
        Law("refused changes nothing"),
    ),
    "tables": (
        Law("only an available block is handed out"),
        Law("table length is ceil(reserved / block_size)"),
        Law("tables keep their blocks, in order"),
        Law("resident requests have a table"),
        Law("slots are where the table puts the positions"),
        Law("lengths"),
        Law("counts add up"),
        Law("references = table occurrences + pins"),
        Law("frame: the known requests"),
    ),
    "sharing": (
        Law("what several own is copied before it is written", ("fork", "truncate")),
        Law("deduplication replaces by the same identity", ("dedup",)),
        Law("swap saves and restores every block once", ("swap",)),
    ),
    "prefix index": (
        Law("hits are the longest published prefix, with one token left to compute", ("prefix_cache",)),
        Law("must <= cached <= may", ("prefix_cache",), unless="reports_index"),
        Law("entries name what their block holds, once it is computed", ("reports_index",)),
        Law("entries go only by eviction", ("reports_index",)),
        Law("only an idle block is evicted", ("reports_index",)),
        Law("evict drops what was asked for, if there is as much", ("evict",)),
        Law("lru: the longest idle is evicted first", ("policy",)),
    ),
    "meaning": (
        Law("contents"),
        Law("invariants"),
        Law("alpha(L1) = L0"),
    ),
    "processes": (
        Law("a subject survives every operation"),
        Law("an answer is one line of the protocol"),
    ),
}
"""All laws, in the order in which they are best read. Those of processes are for subjects in one of their own."""


def applicable(capabilities: Capabilities) -> tuple[str, ...]:
    """The laws that a subject with these capabilities, in this process, could break.

    >>> "must <= cached <= may" in applicable(Capabilities(prefix_cache=True))
    True
    """
    laws = (law for group, members in GROUPS.items() if group != "processes" for law in members)
    return tuple(law.name for law in laws if _applies(law, capabilities))


def _applies(law: Law, capabilities: Capabilities) -> bool:
    has = [all(getattr(capabilities, name) not in (False, "any") for name in need.split()) for need in law.needs]
    return (not has or any(has)) and not (law.unless and getattr(capabilities, law.unless))
