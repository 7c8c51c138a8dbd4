"""Hunting a broken attention, and what moves KV for it: the plan of the kit from its beginning, until a law breaks."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from pagedkv.conformance.attention import check_law, planned_checks
from pagedkv.conformance.attention.plan import LAWS, Size, configurations
from pagedkv.optimized.audit.aot import audit_launch
from pagedkv.optimized.launch import Launch

from tests.conformance.mutants.mutation import Mutant
from tests.conformance.mutants.records import Hunt, Kill
from tests.optimized import gather_laws, merge_laws

UNREAD: Final = ("poison", "unseen", "table_tail", "dead_blocks")
"""Relations about what may not be read."""
AT_LEAST: Final = 15
"""Checks that every oracle gets, also after another one has noticed the mutant, if the plan has as many."""
OF_KIND: Final = {"relation": "relations", "probe": "probes", "bound": "bound", "write": "exact"}


def oracle_of(law: str) -> str:
    """The oracle that a law of the attention kit belongs to."""
    return "poison" if law in UNREAD else OF_KIND[LAWS[law][0]]


def hunt(mutant: Mutant, seed: int, size: Size = "tiny") -> Hunt:
    """Every law of every configuration, in the order of the plan, to the end of the configuration in which one breaks.

    So the other oracles have their chance with the same options, and at least so many checks.
    """
    torch.set_num_threads(1)
    subject = mutant.load()()
    checked, kills = dict.fromkeys(map(oracle_of, LAWS), 0), dict[str, Kill]()
    for number, configuration in enumerate(configurations(subject.capabilities, size)):
        for law, case in planned_checks(subject, configuration, size, seed):
            oracle = oracle_of(law)
            if oracle not in kills and not (kills and checked[oracle] >= AT_LEAST):
                checked[oracle] += 1
                if check_law(subject, law, case) is not None:
                    kills[oracle] = Kill(oracle, law, checked[oracle], number)
        if kills:
            break
    return Hunt(tuple(kills.values()))


def hunt_large(mutant: Mutant, seed: int) -> Hunt:
    """The same on the launches of compiled kernels."""
    return hunt(mutant, seed, "full")


def hunt_gather(mutant: Mutant, _seed: int) -> Hunt:
    """The laws of gathering."""
    return _by_laws(mutant.load(), gather_laws.LAWS, {})


def hunt_merge(mutant: Mutant, _seed: int) -> Hunt:
    """The laws of merging."""
    return _by_laws(mutant.load(), merge_laws.LAWS, {"attention": "bound", "nothing": "bound"}, "relations")


def _by_laws(
    launch: Callable[..., Any], laws: Mapping[str, Any], oracles: Mapping[str, str], otherwise: str = "exact"
) -> Hunt:
    kills: dict[str, Kill] = {}
    for number, (name, law) in enumerate(laws.items(), start=1):
        oracle = oracles.get(name, otherwise)
        if oracle not in kills and gather_laws.broken(law, lambda *arguments: launch(*arguments).interpret()):
            kills[oracle] = Kill(oracle, name, number)
    return Hunt(tuple(kills.values()))


def small_launch(mutant: Mutant) -> Launch:
    """A launch of the kernel that a mutant is of, which the audit compiles: what it shows is in the code alone."""
    launches, cache, rows = mutant.load(), torch.zeros(4, 2, 2, 16).half(), torch.zeros(8, 2, 16).half()
    integers = torch.zeros(8, 2, dtype=torch.int32)
    made: dict[str, Callable[[], Launch]] = {
        "write_kv": lambda: launches.write_launch((rows, rows), (cache, cache), torch.zeros(8, dtype=torch.int64)),
        "copy_blocks": lambda: launches.copy_launch(launches.copy_groups([cache], [cache])[0], integers),
        "gather": lambda: launches.gather_launch(cache, integers, torch.zeros(9, dtype=torch.int32), None, rows),
    }
    return made[mutant.module.rpartition(".")[2]]()


def hunt_code(mutant: Mutant, _seed: int) -> Hunt:
    """What the kernel compiles to: small shapes show nothing of it."""
    problems = [problem for problem in audit_launch(small_launch(mutant), "sm_90").problems() if "32 bits" in problem]
    return Hunt(tuple(Kill("code", problem, 1) for problem in problems[:1]))
