"""The stored traces of mutants: for each, the shortest program that was found to show it.

One file a family, `tests/corpus/mutants/<family>.jsonl`: the traces one after another, a blank line between. A header
says in keys that other readers ignore which mutant it is of (`x-mutant`), the law that the mutant breaks (`x-law`) and
the line of the trace, counted from its header, at which it does (`x-line`; none: at its end). One trace alone, for
`pagedkv replay`, is printed by `python -m tests.conformance.mutants.traces family/name`.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pagedkv.spec.trace import Trace, dumps, parse

FOLDER: Final = Path(__file__).parents[2] / "corpus" / "mutants"


@dataclass(frozen=True)
class Stored:
    """A trace, and what it shows."""

    name: str
    """Of the mutant, within its family."""
    law: str
    at_line: int | None
    trace: Trace

    def text(self) -> str:
        """As it is stored."""
        header, *lines = dumps(self.trace).splitlines()
        known = {"x-mutant": self.name, "x-law": self.law, **({"x-line": self.at_line} if self.at_line else {})}
        return "\n".join([json.dumps({**json.loads(header), **known}), *lines]) + "\n"


def file_of(family: str) -> Path:
    """Where the traces of a family are."""
    return FOLDER / f"{family}.jsonl"


def stored(family: str) -> Iterator[Stored]:
    """The traces of a family, in the order of the file; none where there is no file."""
    path = file_of(family)
    for text in path.read_text(encoding="utf-8").split("\n\n") if path.exists() else ():
        known = json.loads(text.partition("\n")[0])
        yield Stored(
            known["x-mutant"], known["x-law"], known.get("x-line"), parse(text, f"{path}, {known['x-mutant']}")
        )


def store(family: str, traces: Mapping[str, Stored]) -> None:
    """Write the traces of a family, in the order given. Who reads meanwhile finds the old file or the new one."""
    FOLDER.mkdir(exist_ok=True)
    written = file_of(family).with_suffix(".new")
    written.write_text("\n".join(trace.text() for trace in traces.values()), encoding="utf-8")
    written.replace(file_of(family))


def main(argv: Sequence[str]) -> None:
    """Print the stored trace of one mutant."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.mutants.traces", description=main.__doc__)
    parser.add_argument("key", help="family/name, as in docs/mutants.md")
    key: str = parser.parse_args(argv).key
    family, _, name = key.partition("/")
    trace = next((trace for trace in stored(family) if trace.name == name), None)
    if trace is None:
        parser.error(f"no trace is stored of {key}: a key is family/name, as in docs/mutants.md")
    print(trace.text(), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
