"""The generator of random programs without one of its biases, or with one more, for `biases` to measure.

A variant is the generator loaded from altered source, as a mutant is, so that nothing in it is there for the sake of
this.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.conformance.mutants.mutation import Replacement, mutated_module

_LOADED_AGAIN: Final = (
    "programs.choosing", "programs.plans", "programs.undirected", "programs.generator", "failures.shrinking",
    "search.fuzz",
)  # fmt: skip
"""The generator, in import order."""


@dataclass(frozen=True)
class Variant:
    """The generator without one bias, or with one more."""

    name: str
    module: str
    replacements: tuple[Replacement, ...]

    def load(self) -> Any:
        """`fuzz`, as this variant has it."""
        later = _LOADED_AGAIN[_LOADED_AGAIN.index(self.module) + 1 :]
        package = "pagedkv.conformance"
        return mutated_module(f"{package}.{self.module}", self.replacements, [f"{package}.{name}" for name in later])


def _without(name: str, module: str, *replacements: Replacement) -> Variant:
    return Variant(f"without {name}", module, replacements)


def _with(name: str, module: str, *replacements: Replacement) -> Variant:
    return Variant(f"with {name}", module, replacements)


_POOL: Final = "chooser.integer(2, pick(chooser, (6, 10, 16)))"
_BLOCK: Final = "block_size=pick(chooser, (2, 1, 3, 4))"
_KNOWN: Final = "if chance(self.chooser, 3, 4) else new_text"
_OTHER: Final = "if chance(self.chooser, 1, 8):\n            namespace"
_ALIKE: Final = "pick(chooser, NAMESPACES)"
_ANY: Final = "    return _row(programmer, state, kind, pick(programmer.chooser, names)) if names else None"
_SHARED: Final = """    bs = state.config.block_size
    if chance(programmer.chooser, 1, 3):
        ends = {name: state.requests[name].table[-1:] for name in names if state.requests[name].length % bs}
        names = [name for name, end in ends.items() if any(state.references.get(b, 0) > 1 for b in end)] or names
"""
_FITTING: Final = """    if names and not chance(programmer.chooser, 1, 8):
        most = state.config.num_blocks * state.config.block_size
        names = [name for name in names if state.requests[name].reserved < most] or names
"""
_NEAR: Final = """def near(chooser: Chooser, block_size: int, low: int, high: int) -> int:
    if chance(chooser, 1, 4):
        return chooser.integer(low, high)
    blocks = chooser.integer(low // block_size, high // block_size)
    return min(max(low, blocks * block_size + pick(chooser, (0, 1, -1))), high)


def waiting("""
_NEAR_ENDS: Final = (
    ("def waiting(", _NEAR),
    ("self.chooser.integer(0, kept)", "near(self.chooser, state.config.block_size, 0, kept)"),
    ("self.chooser.integer(0, max(", "near(self.chooser, bs, 0, max("),
    ("programmer.chooser.integer(max(", "near(programmer.chooser, bs, max("),
    (
        "programmer.chooser.integer(1, 2 * bs + 1)",
        "max(1, near(programmer.chooser, bs, r.length + 1, r.length + 2 * bs + 1) - r.length)",
    ),
    ("programmer.chooser.integer(0, len(", "near(programmer.chooser, state.config.block_size, 0, len("),
    (
        "programmer.chooser.integer(1, state.requests[request].length)",
        "near(programmer.chooser, state.config.block_size, 1, state.requests[request].length)",
    ),
)
_PARTIAL: Final = "[name for name in ready if state.requests[name].length % state.config.block_size] or ready"
_BLIND: Final = "if chance(self.chooser, 1, 16):\n                operation"
_TWICE: Final = 'if rows and kind != "free" and chance(self.chooser, 1, 4):'
_MADE: Final = "operation = MAKE[self.kinds[weighted(self.chooser, self.weights)]](self, state)"
_AVAILABLE: Final = ("Truncate, Unpin,", "Truncate, Unpin, available,")
_ROOM: Final = """exhausted = available(state) == 0 and chance(self.chooser, 1, 3)
                releasing = [kind for kind in ("free", "preempt", "truncate") if kind in self.kinds]
                drawn = self.kinds[weighted(self.chooser, self.weights)]
                operation = MAKE[pick(self.chooser, releasing) if exhausted else drawn](self, state)"""
_AMONG: Final = "if rows and chance(self.chooser, 1, 2) else operation"
_CHUNKED: Final = "if programmer.capabilities.reserve and chance(programmer.chooser, 1, 4):"
_PART: Final = "programmer.chooser.integer(r.computed, last) if chance(programmer.chooser, 1, 4) else last"
_SHORT: Final = """    if chance(programmer.chooser, 1, 2):
        length = state.requests[request].length
        return Truncate(request, max(1, length - programmer.chooser.integer(0, 3)))
"""
_TRUNCATE: Final = "    return Truncate(request, programmer"
_AGAIN: Final = """    if state.pins and chance(programmer.chooser, 1, 3):
        again = pick(programmer.chooser, list(state.pins))
        return Pin(again.tokens, again.namespace)
"""
_PIN: Final = "    namespace, tokens = programmer.known_text(state)\n"
_CHILDLESS: Final = "if child is None:\n        return None\n    return F"
_SPARED: Final = _CHILDLESS.replace("None:", "None or (available(state) == 0 and chance(programmer.chooser, 1, 2)):")
_WHOLE: Final = "bs * blocks + 1 if chance(self.chooser, 1, 16) else "
_WEIGHTS: Final = "        self.kinds, self.weights = [*weights], [*weights.values()]\n"
_SWARM: Final = """        for kind in [*weights]:
            weights[kind] *= 1 if kind in ("admit", "append", "commit", "free") else pick(chooser, (1, 0, 2))
        weights = {kind: weight for kind, weight in weights.items() if weight}
"""
_KEEPING: Final = """        if chance(chooser, 1, 2):
            del weights["free"]
"""
_SUBSETS: Final = (
    ("fork", "append"), ("preempt", "resume"), ("fork", "free", "lookup", "pin", "unpin", "evict", "truncate"),
    ("append", "truncate", "reserve"), ("begin_step", "end_step", "free"),
)  # fmt: skip
"""Beside admit, append, commit, free, permute and batch, which are in all of them."""
_CHILD: Final = "return Fork(pick(programmer.chooser, ready), child)"
_PROMPT: Final = "        return (known + text(self.chooser, new)) or (0,), namespace"
_CHANGED: Final = """        if known and chance(self.chooser, 1, 8):
            place = self.chooser.integer(0, len(known) - 1)
            known = (*known[:place], 1 - min(1, known[place]), *known[place + 1 :])
"""


def _about(subsets: Sequence[Sequence[str]], share: int) -> str:
    """Code that makes a share of five programs about one of these subsets."""
    always = ("admit", "append", "commit", "free", "permute", "batch")
    return f"""        every = weights_of(capabilities)
        possible = [kinds for kinds in {tuple(subsets)} if (every.keys() - {always}) & {{*kinds}}]
        if possible and chance(chooser, {share}, 5):
            about = pick(chooser, possible)
            kept = {{k: w for k, w in every.items() if k in {{*{always}, *about}}}}
            weights = {{k: 2 * w + 4 if k in about else w for k, w in kept.items()}}
"""


VARIANTS: Final = (
    _without("small pools: 24 to 48 blocks", "programs.plans", (_POOL, "chooser.integer(24, 48)")),
    _without("small blocks: 16 tokens", "programs.plans", (_BLOCK, "block_size=16")),
    _without("an alphabet of two", "programs.choosing", ("int(chooser.integer(0, 3) == 3)", "chooser.integer(0, 999)")),
    _without("prompts that continue what is known", "programs.generator", (_KNOWN, "if False else new_text")),
    _without("other namespaces", "programs.generator", (_OTHER, "if False:\n            namespace")),
    _without("namespaces that are alike", "programs.plans", (_ALIKE, "NAMESPACES[0]")),
    _without("undirected operations", "programs.generator", (_BLIND, "if False:\n                operation")),
    _without("two rows for one request", "programs.generator", (_TWICE, "if False:")),
    _without("prompts of the whole pool", "programs.generator", (_WHOLE, "")),
    _without("misuse among rows that are right", "programs.generator", (_AMONG, "if False else operation")),
    _without("prompts in chunks", "programs.generator", (_CHUNKED, "if False:")),
    _without("commits of a part", "programs.generator", (_PART, "last")),
    _without(
        "weights: every kind as often", "programs.generator",
        (_WEIGHTS, f"        weights = dict.fromkeys(weights, 1)\n{_WEIGHTS}"),
    ),
    _with("truncations by a few tokens preferred", "programs.generator", (_TRUNCATE, _SHORT + _TRUNCATE)),
    _with("pins of what is pinned preferred", "programs.generator", (_PIN, _AGAIN + _PIN)),
    _with(
        "every other fork left out in an exhausted pool", "programs.generator",
        (_CHILDLESS, _SPARED), _AVAILABLE,
    ),
    _with("every other program frees nothing", "programs.generator", (_WEIGHTS, _KEEPING + _WEIGHTS)),
    _with("swarm: kinds switched off and doubled at random", "programs.generator", (_WEIGHTS, _SWARM + _WEIGHTS)),
    _with("programs about preemption", "programs.generator", (_WEIGHTS, _about(_SUBSETS[1:2], 1) + _WEIGHTS)),
    _with("programs about five subsets", "programs.generator", (_WEIGHTS, _about(_SUBSETS, 3) + _WEIGHTS)),
    _with("swarm and five subsets", "programs.generator", (_WEIGHTS, _SWARM + _about(_SUBSETS, 3) + _WEIGHTS)),
    _with("room made in an exhausted pool", "programs.generator", (_MADE, _ROOM), _AVAILABLE),
    _with("lengths near the ends of blocks", "programs.generator", *_NEAR_ENDS),
    _with("growth that fits preferred", "programs.generator", (_ANY, _FITTING + _ANY)),
    _with("writers of shared blocks preferred", "programs.generator", (_ANY, _SHARED + _ANY)),
    _with(
        "every other fork of the youngest", "programs.generator",
        (_CHILD, _CHILD.replace("pick(", "ready[0] if chance(programmer.chooser, 1, 2) else pick(")),
    ),
    _with("parents with a partial block preferred", "programs.generator", (_CHILD, _CHILD.replace("ready", _PARTIAL))),
    _with("one known token changed in one prompt of eight", "programs.generator", (_PROMPT, _CHANGED + _PROMPT)),
)  # fmt: skip
