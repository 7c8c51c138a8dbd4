"""Other projects' Triton kernels in our interpreter: what their programs touch, and in which order they may run.

Triton's own interpreter reads whatever lies behind a tensor and runs programs one after another in their order. Ours
refuses what is outside of the tensors that a launch was given, shuffles the programs, and records what each touches.
`python -m tests.adapters.attention.programs` adds what it finds to docs/conformance/attention-*.json.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pagedkv.conformance.adapters.attention import holding, sglang_triton, vllm_triton
from pagedkv.conformance.adapters.attention.verdicts import VLLM
from pagedkv.conformance.attention import Case
from pagedkv.conformance.attention.bench import Bench
from pagedkv.conformance.attention.cases import contents
from pagedkv.conformance.attention.placement import place
from pagedkv.optimized.audit.interpret import Interpreted, InterpretedError, OutOfBounds, ordered, recording, shuffled
from pagedkv.spec.attention_subject import Problem
from pagedkv.spec.words import ceil_div

PAGES: Final = Path(__file__).parents[3] / "docs" / "conformance"
COMMAND: Final = "python -m tests.adapters.attention.programs"
BOUNDS, ORDER = "a program touches only the tensors of its launch", "no program touches what another one writes"

ADAPTERS: Final[dict[str, Callable[[], Any]]] = {
    "vllm-triton": lambda: vllm_triton.VllmUnified(run=Interpreted),
    "vllm-triton-split": lambda: vllm_triton.VllmUnified(16, run=Interpreted),
    "sglang-triton": lambda: sglang_triton.SglangTriton(run=Interpreted),
}

DECODE = Case(block_size=16, lengths=(9, 19, 40), query_lens=(1, 1, 1), head_dim=32)
CASES: Final = (
    DECODE,
    replace(DECODE, query_lens=(1, 12, 2)),
    replace(DECODE, query_lens=(1, 12, 2), group=3, head_dim=80),
    replace(DECODE, window=3),
    replace(DECODE, window=3, query_lens=(1, 12, 2)),
    replace(DECODE, window=3, query_lens=(1, 12, 2), causal=False),
)
"""Order is looked at with tables of the kit, which have two entries past the longest request, bounds without those."""

VERDICTS: Final = (
    holding.Verdict(
        (BOUNDS,), (), "bug",
        "Entries of a block table are loaded without a mask for a whole tile of 16 or 32 positions, also past the "
        "last block. Nothing is done with what is loaded, for keys and values are masked. But where the table of the "
        "last request is full, the load goes past the tensor, with blocks of 16 by one entry: harmless as long as "
        "memory is mapped there. Issue 53658 has a case where it is not; a repair is under way.",
        f"{VLLM}/pull/56862",
    ),
    holding.Verdict(
        (ORDER,), (), "bug",
        "A block of 16 rows (query_pos) holds 16 // group query rows; where the group does not divide 16, what is left "
        "of the 16 begins the next query row, and two programs write its first heads. Both write what is right, unless "
        "a window without causality (above) makes one of them wrong.",
        f"{VLLM}/blob/main/vllm/v1/attention/ops/triton_unified_attention.py",
    ),
)  # fmt: skip


def found(name: str) -> dict[str, holding.Violation]:
    """The first violation of each law."""
    subject, violations = ADAPTERS[name](), dict[str, holding.Violation]()
    for case in CASES:
        for law, detail in broken(subject, case).items():
            violations.setdefault(law, holding.Violation(law, case, detail))
    return violations


def broken(subject: Any, case: Case) -> dict[str, str]:
    """What is wrong with a launch, by law."""
    details = {}
    try:
        Bench(subject).attend(full(case))
    except (OutOfBounds, InterpretedError) as error:
        details[BOUNDS] = str(error)
    with ordered(shuffled(case.seed)), recording() as log:
        Bench(subject).run(case)
    if conflicts := log.conflicts():
        first = conflicts[0]
        details[ORDER] = (
            f"{first.kernel}: programs {first.program} and {first.other} both touch byte {first.offset} of"
            f" {first.argument} ({first.access}, {first.other_access})"
        )
    return details


def full(case: Case) -> Problem:
    """The launch of a case, its table without spare entries."""
    problem = place(case, contents(case))
    used = ceil_div(max(case.lengths), case.block_size)
    return replace(problem, block_tables=problem.block_tables[:, :used].copy())


def main() -> None:
    """Each page that there is."""
    for name in ADAPTERS:
        path = PAGES / f"attention-{name}.json"
        data, violations = json.loads(path.read_text(encoding="utf-8")), found(name)
        for law in (BOUNDS, ORDER):
            data["kept"] = [each for each in data["kept"] if each != law] + [law] * (law not in violations)
            data["broken"] = [each for each in data["broken"] if each["law"] != law]
            if law in violations:
                entry = holding.told(violations[law].judged(VERDICTS), [violations[law]], "")
                inputs = {"command": COMMAND, "shows": f"{violations[law].detail}, {violations[law].case.describe()}"}
                data["broken"].append({**entry, "inputs": inputs})
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        print(name, {law: each.detail for law, each in violations.items()} or "holds")


if __name__ == "__main__":
    main()
