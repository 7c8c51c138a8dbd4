"""What random programs consist of: a pool, and the operations that a subject has, each tried so and so often.

A pool that never runs out tests no refusal, so each program draws its own, small enough to run out. All kinds of
operations that it allows are in the program: docs/fuzzing_evidence.md says what came of programs about a few of them.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from pagedkv.conformance.programs.choosing import Chooser, chance, pick
from pagedkv.spec import Config
from pagedkv.spec.subject import BlockManagerSubject, Capabilities, SubjectFactory

NEEDS: Final[Mapping[str, str]] = {
    "admit": "", "append": "", "commit": "", "free": "",
    "reserve": "reserve", "fork": "fork", "truncate": "truncate", "preempt": "preempt swap", "resume": "preempt swap",
    "lookup": "lookup", "pin": "pins", "unpin": "pins", "evict": "evict", "reset_prefix_index": "evict",
    "begin_step": "overlapped_steps", "end_step": "overlapped_steps", "permute": "permute", "batch": "batch",
}  # fmt: skip
"""Kinds of operations, and the capabilities of which any allows them; none: every subject has it."""

WEIGHTS: Final[Mapping[str, int]] = {
    "admit": 6, "append": 8, "commit": 12, "free": 3, "reserve": 3, "fork": 5, "truncate": 4, "preempt": 3,
    "resume": 5, "lookup": 1, "pin": 2, "unpin": 2, "evict": 1, "reset_prefix_index": 1, "begin_step": 4,
    "end_step": 4, "permute": 1, "batch": 8,
}  # fmt: skip
"""How often each kind is tried, beside the others."""

NAMESPACES: Final = (
    ("", "other"), ("lora=a", "user=a"), ("lora=a id=1", "lora=a id=2"), ("lora=a load=1", "lora=a load=2"),
    ("a|bc", "ab|c"),
)  # fmt: skip
"""Two that are not the same, and that are easily taken to be: without the kind of a name, its number, a separator."""


@dataclass(frozen=True)
class Plan:
    """One program's pool, and its namespaces."""

    config: Config
    namespaces: tuple[str, str] = NAMESPACES[0]
    """Most texts are in the first; now and then one goes over to the other."""


def probe(factory: SubjectFactory) -> BlockManagerSubject:
    """A subject with a small pool, to be looked at: with a prefix cache, which is on by default, or else without.
    Raises what the factory raises at the first if it makes neither."""
    plain = Config(num_blocks=2, block_size=2)
    try:
        return factory(plain)
    except ImportError:
        raise
    except Exception:  # whatever it is: a subject without a prefix cache may say so in its own way
        with suppress(Exception):
            return factory(replace(plain, prefix_cache=False))
        raise


def declared(factory: SubjectFactory) -> Capabilities:
    """What a subject declares with everything switched on that it has."""
    return probe(factory).capabilities


def allows(capabilities: Capabilities, kind: str) -> bool:
    """Whether a subject with these capabilities has operations of this kind."""
    return not NEEDS[kind] or any(getattr(capabilities, need) for need in NEEDS[kind].split())


def weights_of(capabilities: Capabilities) -> dict[str, int]:
    """How often each kind of operation is tried that a subject with these capabilities has."""
    return {kind: weight for kind, weight in WEIGHTS.items() if allows(capabilities, kind)}


def draw_plan(chooser: Chooser, capabilities: Capabilities) -> Plan:
    """A pool within the capabilities."""
    windowed = capabilities.sliding_window and chance(chooser, 1, 5)
    config = Config(
        num_blocks=chooser.integer(2, pick(chooser, (6, 10, 16))),
        block_size=pick(chooser, (2, 1, 3, 4)),
        prefix_cache=capabilities.prefix_cache and not chance(chooser, 1, 8),
        sliding_window=chooser.integer(1, 7) if windowed else None,
        sink_tokens=chooser.integer(0, 5) if windowed and capabilities.sink_tokens else 0,
        max_rollback=chooser.integer(0, 2) if windowed else 0,
        swap_blocks=chooser.integer(0, 6) if capabilities.swap else 0,
        max_requests=chooser.integer(1, 4) if chance(chooser, 1, 5) else None,
        overlapped_steps=capabilities.overlapped_steps and chance(chooser, 1, 4),
        publish=capabilities.publish,
        dedup=capabilities.dedup,
    )
    return Plan(config, pick(chooser, NAMESPACES))
