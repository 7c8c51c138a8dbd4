"""How a Triton kernel that attends is broken by name, and run by the interpreter; see `attention_mutants` for the idea.

`breaks` lists the laws that must name the mutant, `needs` the features of the configuration that shows it.
"""

from tests.conformance.mutants.mutation import Mutant

ATTENTION = "pagedkv.optimized.attention"
KERNELS = "pagedkv.optimized.kernels"
LAUNCHES = (f"{ATTENTION}.attend_launches", f"{ATTENTION}.subject")
"""What is loaded again on top of a kernel."""
USERS = {
    "rows": tuple(f"{KERNELS}.{name}" for name in ("decode", "prefill", "merge")),
    "tiles": tuple(f"{KERNELS}.{name}" for name in ("decode", "prefill")),
}
"""What is made of a file, loaded again before that."""


def kernel(file: str, name: str, laws: str, needs: str, *replacements: tuple[str, str]) -> Mutant:
    """A mutant of one kernel file, with what uses it loaded again on top."""
    dependents = (*USERS.get(file, ()), *LAUNCHES)
    return Mutant(
        name, laws, f"{KERNELS}.{file}", replacements, dependents, "InterpretedTritonAttention",
        frozenset(needs.split()),
    )  # fmt: skip


def launches(name: str, laws: str, needs: str, *replacements: tuple[str, str]) -> Mutant:
    """A mutant of the code that prepares launches."""
    return Mutant(
        name, laws, LAUNCHES[0], replacements, LAUNCHES[1:], "InterpretedTritonAttention", frozenset(needs.split())
    )  # fmt: skip
