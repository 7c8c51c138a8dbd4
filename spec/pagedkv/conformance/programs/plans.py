"""What one random program is about: a pool, and how often each kind of operation is tried.

Uniform programs rarely get anywhere deep. So each program draws its own pool, small enough to run out, and its own
*subset* of operations. "swarm" switches kinds off at random, because what is present hides what its absence shows. The
named subsets are the combinations that block managers are known to get wrong; each has a share of the programs that
does not shrink as operations are added, and the first programs of a run go through all of them. In half of the swarms,
and of the programs about forks and appends, next to nothing is freed, so that the pool stays exhausted.
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


@dataclass(frozen=True)
class Subset:
    """A combination of operations."""

    share: int
    """How often it is drawn."""
    needs: str = ""
    """The capability without which it is pointless."""
    kinds: tuple[str, ...] = ()
    """What it adds to admit, append, commit, permute and batch."""


SUBSETS: Final[Mapping[str, Subset]] = {
    "swarm": Subset(4),
    "fork, append": Subset(1, "fork", ("fork", "append")),
    "admit, preempt, resume": Subset(1, "preempt", ("preempt", "resume")),
    "fork, free, prefix": Subset(
        1, "fork", ("fork", "free", "lookup", "pin", "unpin", "evict", "reset_prefix_index", "truncate")
    ),
    "admit, free, evict": Subset(1, "prefix_cache", ("admit", "free", "evict")),
    "append, window": Subset(1, "sliding_window", ("append", "truncate", "reserve")),
    "steps, free": Subset(1, "overlapped_steps", ("begin_step", "end_step", "free")),
}


NAMESPACES: Final = (
    ("", "other"), ("lora=a", "user=a"), ("lora=a id=1", "lora=a id=2"), ("lora=a load=1", "lora=a load=2"),
    ("a|bc", "ab|c"),
)  # fmt: skip
"""Two that are not the same, and that are easily taken to be: without the kind of a name, its number, a separator."""


@dataclass(frozen=True)
class Plan:
    """One program's pool, the subset that it is about, the weight of each kind of operation, and its namespaces."""

    config: Config
    subset: str
    weights: Mapping[str, int]
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


def subsets_for(capabilities: Capabilities) -> list[str]:
    """The subsets that a subject with these capabilities can have."""
    return [name for name, subset in SUBSETS.items() if not subset.needs or getattr(capabilities, subset.needs)]


def draw_plan(chooser: Chooser, capabilities: Capabilities, number: int | None = None) -> Plan:
    """A pool and weights within the capabilities. By its `number` in a run a program is about a certain subset, if it
    is one of the first."""
    possible = subsets_for(capabilities)
    if number is not None and number < len(possible):
        name = possible[number]
    else:
        name = pick(chooser, [name for name, subset in SUBSETS.items() for _ in range(subset.share)])
        name = name if name in possible else "swarm"
    config, weights = _config(chooser, capabilities, name), _weights(chooser, capabilities, name)
    return Plan(config, name, weights, pick(chooser, NAMESPACES))


def _config(chooser: Chooser, capabilities: Capabilities, subset: str) -> Config:
    windowed = capabilities.sliding_window and (subset == "append, window" or chance(chooser, 1, 5))
    return Config(
        num_blocks=chooser.integer(2, pick(chooser, (6, 10, 16))),
        block_size=pick(chooser, (2, 1, 3, 4)),
        prefix_cache=capabilities.prefix_cache and not chance(chooser, 1, 8),
        sliding_window=chooser.integer(1, 7) if windowed else None,
        sink_tokens=chooser.integer(0, 5) if windowed and capabilities.sink_tokens else 0,
        max_rollback=chooser.integer(0, 2) if windowed else 0,
        swap_blocks=chooser.integer(0, 6) if capabilities.swap else 0,
        max_requests=chooser.integer(1, 4) if chance(chooser, 1, 5) else None,
        overlapped_steps=capabilities.overlapped_steps and (subset == "steps, free" or chance(chooser, 1, 4)),
        publish=capabilities.publish,
        dedup=capabilities.dedup,
    )


def _weights(chooser: Chooser, capabilities: Capabilities, subset: str) -> dict[str, int]:
    weights = {kind: weight for kind, weight in WEIGHTS.items() if allows(capabilities, kind)}
    keeps = chance(chooser, 1, 2)
    for kind, weight in weights.items():
        if kind in SUBSETS[subset].kinds:
            weights[kind] = 2 * weight + 4
        elif kind == "free":
            weights[kind] = 0 if keeps and subset in ("swarm", "fork, append") else weight
        elif kind not in ("admit", "append", "commit"):
            optional = subset != "swarm" and kind not in ("permute", "batch")
            weights[kind] = 0 if optional else weight * pick(chooser, (1, 0, 2))
    return weights
