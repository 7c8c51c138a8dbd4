"""Named mutants of the loops of the CPU backend, each compiled anew in a copy, under the tests that must notice it.

Compiling takes some twenty seconds, so that this is no test: `make mutants` does it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from tests.conformance.mutants.mutation import MutationError

ROOT: Final = Path(__file__).parents[2]
LOOPS: Final = Path("pagedkv", "optimized", "cpu")
LAWS: Final = (
    "tests/optimized/test_cpu_pairs.py", "tests/optimized/test_cpu_backend.py", "tests/optimized/test_cpu_planning.py",
    "tests/conformance/test_attention_subjects.py", "tests/optimized/test_gather.py",
    "tests/optimized/test_cpu_faults.py", "tests/optimized/test_attention.py",
)  # fmt: skip
CHOSEN: Final = "(test_cpu or numba) and not (compiles or twice or avx or without or never_does)"


class Mutant(NamedTuple):
    """One fault: what a file of the loops has, once, and what it has instead."""

    name: str
    file: str
    before: str
    after: str


MUTANTS: Final = (
    Mutant("unseen_first_of_a_pair", "products.py", "second_halves(load(line - b_step))", "load(line - b_step)"),
    Mutant("unseen_second_of_a_pair", "products.py", "first_halves(load(line))", "load(line)"),
    Mutant("every_other_pair_lost", "products.py", "plus(x[4], y[4])", "x[4]"),
    Mutant("last_number_lost", "products.py", "range((end - first) % TURN)", "range((end - first) % TURN - 1)"),
    Mutant("odd_value_not_read", "tiles.py", "range(0, count, 2)", "range(0, count - 1, 2)"),
    Mutant("rows_taken_for_alike", "rows.py", "row + ROWS - 1, base", "row, base"),
    Mutant("factor_of_another_row", "rows.py", "load_number(factors + 12)", "load_number(factors + 8)"),
    Mutant("sums_not_rescaled", "rows.py", "factor = power_of_2((before - largest) * LOG2_E)", "factor = factor"),
    Mutant("unseen_end_weighed", "rows.py", "if first > 0 or end < TILE:", "if first > 0:"),
    Mutant("slope_of_the_first_head", "rows.py", "head * work.group + row % work.group", "row % work.group"),
    Mutant("same_block_for_ever", "places.py", "                entry += 4\n", ""),
    Mutant("next_item_from_its_first_position", "places.py", "base = first_tile(item)", "base = item.first"),
    Mutant("request_of_the_first_item", "places.py", "item.request * work.tables_row", "0 * work.tables_row"),
    Mutant("span_sees_too_far", "items.py", "min(item.end, bounds[token, 1])", "bounds[token, 1]"),
    Mutant("records_of_spans_mixed_up", "items.py", "span - parts[token, 1]", "span"),
    Mutant("largest_of_the_last_part", "records.py", "max(largest, load_number(", "max(NOTHING, load_number("),
    Mutant("sink_forgotten", "records.py", "weights += power_of_2((sink - shift) * LOG2_E)", "weights += 0"),
    Mutant("first_block_not_compared", "planning.py", "return i < first", "return i <= first"),
    Mutant("shared_though_not_seen", "planning.py", " and bounds[token, 1] >= end", ""),
    Mutant("window_too_wide", "planning.py", "max(0, own - window + 1)", "max(0, own - window)"),
    Mutant("slots_given_twice", "moves.py", "slot >= len(taken) or (slot >= 0 and taken[slot])", "slot >= len(taken)"),
    Mutant("values_not_written", "moves.py", "keys if n % 2 == 0 else values", "keys if n % 2 >= 0 else values"),
    Mutant("gathered_from_the_block_s_first", "moves.py", "offset * pages.token", "0"),
)  # fmt: skip


def altered(mutant: Mutant) -> str:
    """The text of its file with the fault in it. Raises `MutationError` unless what it replaces is there once."""
    text = (ROOT / "optimized" / LOOPS / mutant.file).read_text(encoding="utf-8")
    if text.count(mutant.before) != 1:
        raise MutationError(f"anchor occurs {text.count(mutant.before)} times, not once, in {mutant.file}")
    return text.replace(mutant.before, mutant.after)


class Noticed(NamedTuple):
    """What failed on a mutant."""

    by: str
    """The test, or how the process ended."""
    tests: int
    """How many were run, the one that failed included."""


def is_noticed(mutant: Mutant, folder: Path) -> Noticed | None:
    """The first test that fails, or None."""
    copy = folder / mutant.name
    shutil.copytree(ROOT / "optimized", copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / LOOPS / mutant.file).write_text(altered(mutant), encoding="utf-8")
    paths = " ".join(map(str, (ROOT / "spec", ROOT / "reference", copy, ROOT / "tools", ROOT)))
    environment = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "PYTHONPATH")}
    options = ["-x", "-q", "-p", "no:cacheprovider", "-o", f"pythonpath={paths}", "-k", CHOSEN]
    command = [sys.executable, "-m", "pytest", *options, *LAWS]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    shutil.rmtree(copy)
    if done.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    passed = re.search(r"(\d+) passed", done.stdout)
    by = failed[1].rpartition("/")[2] if failed else f"the process ended with {done.returncode}"
    return Noticed(by, 1 + (int(passed[1]) if passed else 0))
