"""The corpus: traces that broke real block managers, each with what every legal one must answer.

`B001_….jsonl` is about a public bug, which the note in its header describes (`docs/bugs.md` has them all); the others
are about what is easily done wrong. They replay in no time, so every run has them: what others found the hard way is
looked for before anything random is.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from pagedkv.spec.trace import Trace, load


@cache
def files() -> tuple[Path, ...]:
    """The trace files, in the order of their names."""
    return tuple(sorted(Path(__file__).parent.glob("*.jsonl")))


@cache
def traces() -> Mapping[Path, Trace]:
    """The traces, by their files."""
    return MappingProxyType({path: load(path) for path in files()})
