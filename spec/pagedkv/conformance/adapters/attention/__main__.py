"""Hold a kernel of another project against the specification, and write the data of its page.

    python -m pagedkv.conformance.adapters.attention sdpa --out docs/conformance

Exit code 0: every broken law has its verdict; 1: one has none; 2: what it needs is not here, a package or a
processor. A single case is run again by `pagedkv attention --subject ... --law ... --case ...`, as the data says.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from pagedkv.conformance.adapters.attention.catalogue import ENTRIES, HERE, Entry
from pagedkv.conformance.adapters.attention.holding import hold, record

MISSING = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {HERE}", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", choices=ENTRIES)
    parser.add_argument("--size", choices=("tiny", "full"), help="of the shapes; default: what suits the subject")
    parser.add_argument("--seed", type=int, default=0, help="draws contents and placements")
    parser.add_argument("--out", metavar="DIR", help="where attention-NAME.json goes")
    parsed = parser.parse_args(arguments)
    entry = ENTRIES[parsed.name]
    try:
        subject = entry.make()
    except ImportError as error:
        print(error, file=sys.stderr)
        return MISSING
    return run(parsed, entry, subject)


def run(parsed: argparse.Namespace, entry: Entry, subject: Any) -> int:
    """Hold the subject to all that it declares, tell, and write the data if asked to."""
    size = parsed.size or entry.size
    held = hold(subject, seed=parsed.seed, size=size, progress=lambda text: print(text, file=sys.stderr, flush=True))
    data = record(
        subject, held, entry.verdicts, factory=entry.factory, command=f"python -m {HERE} {parsed.name}",
        date=date.today().isoformat(), not_run=entry.not_run,
    )  # fmt: skip
    print(f"{data['subject']}: {held.checks} checks in {held.elapsed_s:.0f} s; kept {', '.join(held.kept)}")
    for broken in data["broken"]:
        print(f"{broken['law']} ({broken['verdict']}): {broken['inputs']['shows']}\n  {broken['inputs']['command']}")
    if parsed.out:
        path = Path(parsed.out) / f"attention-{parsed.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return int(any(broken["verdict"] == "not judged" for broken in data["broken"]))


if __name__ == "__main__":
    sys.exit(main())
