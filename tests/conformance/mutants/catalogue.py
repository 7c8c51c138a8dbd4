"""The catalogue: every family, and every mutant by its key, "family/name"."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

from pagedkv.optimized.device.subject import DeviceSubject
from pagedkv.optimized.subject import OptimizedSubject
from pagedkv.reference.manager import BlockManager
from pagedkv.spec.subject import SubjectFactory

from tests.conformance import attention_kernel_mutants, attention_mutants, move_kernel_mutants
from tests.conformance.broken_manager import BROKEN_MANAGERS
from tests.conformance.illegal import ILLEGAL
from tests.conformance.mutants import attention, device, loops, managers
from tests.conformance.mutants.mutation import Mutant, altered
from tests.conformance.mutants.records import AnyMutant, Family
from tests.conformance.real_bugs.collected import RECORDS
from tests.conformance.real_bugs.kernel_mutants import BUG_KERNELS
from tests.optimized import cpu_mutants
from tests.optimized.device.host_mutants import HOST_KERNELS, HOST_LOOPS
from tests.optimized.device.loop_mutants import LOOP_MUTANTS
from tests.optimized.device.pool_mutants import KERNEL_MUTANTS as POOL_KERNELS


def _of_bugs() -> Iterator[Mutant]:
    """One a cause, in the order of the bugs. Some causes are among the mutants of the reference already."""
    shared = set(ILLEGAL.values())
    yield from dict.fromkeys(record.mutant for record in RECORDS if record.mutant not in shared)


_MANAGERS: Final = (
    Family(
        "reference", "the reference manager", "operations",
        tuple(ILLEGAL.values()), managers.hunt, managers.subject_of, lambda: BlockManager,
    ),
    Family(
        "optimized", "the optimized manager", "operations",
        BROKEN_MANAGERS, managers.hunt, managers.subject_of, lambda: OptimizedSubject,
    ),
    Family(
        "bugs", "bugs of other projects, in the reference manager", "operations",
        tuple(_of_bugs()), managers.hunt, managers.subject_of, lambda: BlockManager,
    ),
)  # fmt: skip
_POOL: Final = (
    Family("pool-kernels", "kernels of the device pool", "calls", (*POOL_KERNELS, *HOST_KERNELS), device.hunt_kernels),
    Family(
        "pool-loops", "loops of the device pool", "operations or calls",
        (*LOOP_MUTANTS, *HOST_LOOPS), device.hunt_loops,
        lambda mutant: device.subject_of(mutant.load()), lambda: cast(SubjectFactory, DeviceSubject),
    ),
)  # fmt: skip
_ATTENTION: Final = (
    Family("attention", "attention in tiles, in NumPy", "checks", attention_mutants.MUTANTS, attention.hunt),
    Family(
        "attention-large",
        "attention in tiles, on launches as of compiled kernels",
        "checks",
        attention_mutants.LARGE_MUTANTS,
        attention.hunt_large,
    ),
    Family(
        "attention-kernels", "kernels that attend", "checks", attention_kernel_mutants.KERNEL_MUTANTS, attention.hunt
    ),
    Family("bug-kernels", "bugs of other projects, in the kernels that attend", "checks", BUG_KERNELS, attention.hunt),
    Family("moves", "kernels that write and copy", "checks", move_kernel_mutants.MOVE_MUTANTS, attention.hunt),
    Family("gather", "the kernel that gathers", "laws", move_kernel_mutants.GATHER_MUTANTS, attention.hunt_gather),
    Family("merge", "the kernel that merges", "laws", move_kernel_mutants.MERGE_MUTANTS, attention.hunt_merge),
    Family("offsets", "offsets in 32 bits", "audits", move_kernel_mutants.NARROW_MUTANTS, attention.hunt_code),
    Family("cpu-loops", "loops of the CPU backend", "tests", cpu_mutants.MUTANTS, loops.hunt),
)

FAMILIES: Final = {family.name: family for family in (*_MANAGERS, *_POOL, *_ATTENTION)}
"""By name."""


@dataclass(frozen=True)
class Entry:
    """One mutant of the catalogue."""

    family: Family
    mutant: AnyMutant

    @property
    def name(self) -> str:
        """Within the family. In the pool several files have a fault of one name, so that the file stands before it."""
        file = f"{self.mutant.module.rpartition('.')[2]}: " if isinstance(self.mutant, Mutant) and self._in_pool else ""
        return f"{file}{self.mutant.name}"

    @property
    def key(self) -> str:
        """Within the catalogue."""
        return f"{self.family.name}/{self.name}"

    @property
    def breaks(self) -> str:
        """The law, or what the family says instead of one."""
        return self.mutant.breaks if isinstance(self.mutant, Mutant) else f"the loops in {self.mutant.file}"

    @property
    def digest(self) -> str:
        """Of what is broken, and how: the result of another fault is no result of this one."""
        fault = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in self._fields()}
        return hashlib.sha256(repr(fault).encode()).hexdigest()[:12]

    def _fields(self) -> list[tuple[str, object]]:
        return [*(vars(self.mutant) if isinstance(self.mutant, Mutant) else self.mutant._asdict()).items()]

    def applies(self) -> None:
        """Raises `MutationError` unless each anchor occurs once in the text as it is."""
        if isinstance(self.mutant, Mutant):
            altered(self.mutant.module, self.mutant.replacements)
        else:
            cpu_mutants.altered(self.mutant)

    @property
    def _in_pool(self) -> bool:
        return self.family in _POOL


def _entries() -> Iterator[Entry]:
    for family in FAMILIES.values():
        yield from (Entry(family, mutant) for mutant in family.mutants)


CATALOGUE: Final[dict[str, Entry]] = {entry.key: entry for entry in _entries()}
"""By key."""
