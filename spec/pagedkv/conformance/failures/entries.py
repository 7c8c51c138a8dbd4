"""The file of known failures: TOML, of whose entries those with a `trace` are about block managers (`failures.known`),
and those with a `case` about attention kernels (`attention.pins`).
"""

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from pagedkv.spec import Misuse

KINDS: Final = (("trace", "line", "law", "reason"), ("law", "case", "reason"))
"""The keys of an entry about a block manager, and of one about a kernel. Each may have a `subject`, too."""
APART: Final = "process:"
"""Before the name of a subject: in a process of its own."""


def entries(path: str | Path, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The entries of a TOML file that have this key, `trace` or `case`, and how a message names each.

    What such a file should not have, in an entry of either kind, is `Misuse`.
    """
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise Misuse("known_failures", str(path), f"a TOML file that can be read ({error})") from error
    known = document.get("known", [])
    if set(document) - {"known"} or not isinstance(known, list):
        raise Misuse(f"{path}: keys", ", ".join(document), "[[known]] tables only")
    for number, entry in enumerate(known, start=1):
        where = f"{path}: known[{number}]"
        _check_form(where, entry)
        if key in entry:
            yield where, entry


def _check_form(where: str, entry: Any) -> None:
    """The keys of one of the two kinds, and texts that are not empty."""
    if not isinstance(entry, dict) or not any(set(keys) <= set(entry) <= {*keys, "subject"} for keys in KINDS):
        given = ", ".join(entry) if isinstance(entry, dict) else entry
        allowed = " or ".join(", ".join(keys) for keys in KINDS)
        raise Misuse(f"{where} keys", given, f"{allowed}, and perhaps subject")
    for name in entry:
        if name != "line" and not (isinstance(entry[name], str) and entry[name].strip()):
            raise Misuse(f"{where}.{name}", entry[name], "a text that is not empty")


class Entry(Protocol):
    """What entries of both kinds have."""

    @property
    def name(self) -> str: ...
    @property
    def subject(self) -> str | None: ...


EntryT = TypeVar("EntryT", bound=Entry)


def of_subject(known: Iterable[EntryT], *names: str) -> tuple[EntryT, ...]:
    """Those that are about the subject of these names, wherever it runs: `process:` makes no difference.

    An entry that stands there twice is one. Two different ones with one name are `Misuse`.
    """
    wanted = {None, *(name.removeprefix(APART) for name in names)}
    found: list[EntryT] = []
    for each in known:
        if (each.subject and each.subject.removeprefix(APART)) in wanted and each not in found:
            found.append(each)
    if twice := [name for name, count in Counter(each.name for each in found).items() if count > 1]:
        raise Misuse("known_failures", twice[0], "one entry for each")
    return tuple(found)


def entry_of(**fields: str | int) -> str:
    """An entry with these fields, and a reason to be given."""
    lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in {**fields, "reason": "…"}.items())
    return "\n".join(["[[known]]", *lines])
