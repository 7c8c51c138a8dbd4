"""docs/conformance.md, made of the numbers in docs/conformance/*.json. `python -m tests.adapters.page` writes it."""

import inspect
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pagedkv.conformance.attention.plan import LAWS

DOCUMENTS: Final = Path(__file__).parent.parent.parent / "docs"
KINDS: Final = ("block manager", "attention")
VERDICTS: Final = ("bug", "documented choice", "our misunderstanding", "limit of the adapter")
OPEN: Final = "not judged yet"
"""A broken law that nobody has looked into; a test does not let it stay."""

INTRODUCTION: Final = """# Other projects, held against the specification

Block managers and attention of other projects as subjects of the kit, each run in an environment of its own. Nobody
changed a line of theirs. An adapter calls what the project's scheduler calls, and repairs nothing. What the scheduler
checks before it calls (known requests, lengths, a request that never fits) is the adapter's own, and the laws about
that are not counted here.

A law that is broken comes with its minimal trace (`pagedkv replay TRACE --subject FACTORY` shows it again), or with the
command that shows it and what that prints, and with a verdict, which was given after reading the project's code,
documentation and issues: a *bug*; a *documented choice* that our laws do not allow for; *our misunderstanding*, where
the law asks what was never promised; a *limit of the adapter*. [What the laws say](#what-the-laws-say) is at the end.

This page is made by `python -m tests.adapters.page` of what `make adapters` and `make adapters-attention` measured.
"""

MEANT: Final = {
    "alpha(L1) = L0": "Read through its table, every request has its own tokens: paging (L1) is what is meant (L0).",
    "contents": "What a plan tells the engine to copy, write, save and restore leaves what belongs there at every "
    "computed position.",
    "counts add up": "Available are the blocks that nobody refers to, less those that are held.",
    "invariants": "Every block is free, used or idle, and has as many references as tables and pins name it.",
    "must <= cached <= may": "Of an index that is not shown: what is certainly there is found, and nothing that is "
    "certainly gone or was never there.",
}
"""Laws of block managers whose names do not say what they mean."""


def load() -> list[dict[str, Any]]:
    """All subjects, block managers first, by name."""
    files = (DOCUMENTS / "conformance").glob("*.json")
    subjects = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    return sorted(subjects, key=lambda data: (KINDS.index(data["kind"]), data["subject"].lower()))


def render(subjects: Iterable[dict[str, Any]]) -> str:
    """The page."""
    groups = _alike(subjects)
    sections = [line for group in groups for line in _section(group)]
    return "\n".join([INTRODUCTION, *_summary(groups), *sections, *_meanings(groups)])


def _alike(subjects: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Subjects in groups of those that are one project's and keep and break the same laws for the same reasons."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for data in subjects:
        reasons = [[entry[key] for key in ("law", "verdict", "why")] for entry in data["broken"] if "verdict" in entry]
        alike = [data["subject"].rpartition(" (")[0], data["version"], data["capabilities"], data["kept"], reasons]
        key = alike if reasons and data["kind"] == "attention" else data["subject"]
        groups.setdefault(json.dumps(key), []).append(data)
    return [*groups.values()]


def _title(group: list[dict[str, Any]]) -> str:
    """What their names have in common, and then what each has of its own."""
    name = str(group[0]["subject"])
    return f"{name.rpartition(' (')[0]} ({', '.join(map(_own, group))})" if len(group) > 1 else name


def _own(data: dict[str, Any]) -> str:
    return str(data["subject"].rpartition(" (")[2].removesuffix(")"))


def _summary(groups: list[list[dict[str, Any]]]) -> Iterator[str]:
    yield "| subject | version | tried | laws kept | laws broken |"
    yield "|---|---|---|---:|---|"
    for group in groups:
        for data in group:
            name = f"[{data['subject']}](#{_anchor(_title(group))})"
            version = f"{data['package']} {data['version']}"
            yield f"| {name} | {version} | {_tried(data)} | {len(data['kept'])} | {_verdicts(data['broken'])} |"
    yield ""


def _tried(data: dict[str, Any]) -> str:
    if data["kind"] == "attention":
        return f"{data['cases']:,} cases"
    return f"{data['programs']:,} programs, {data['operations']:,} operations"


def _verdicts(broken: list[dict[str, Any]]) -> str:
    """How many laws got which verdict; a law that several subjects of a project break for one reason counts once."""
    different = {(entry["law"], entry.get("verdict", OPEN)) for entry in broken}
    counts = Counter(verdict for _, verdict in different)
    return ", ".join(f"{counts[verdict]} × {verdict}" for verdict in (*VERDICTS, OPEN) if counts[verdict]) or "none"


def _anchor(heading: str) -> str:
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _section(group: list[dict[str, Any]]) -> Iterator[str]:
    first, *others = group
    yield f"## {_title(group)}"
    yield ""
    for data in group:
        whose = f"* {_own(data)}: " if others else ""
        seconds = f", {data['seconds']} s" if "seconds" in data else ""
        yield f"{whose}{data['package']} {data['version']}, {data['date']}, `{data['command']}`{seconds}."
    if others:
        yield ""
    yield f"Declared: {', '.join(first['capabilities']) or 'nothing beyond the least'}."
    yield ""
    if "variants" in first:
        yield from _variants(first["variants"])
    for data in others:
        yield f"What is shown is of {_own(first)}; of {_own(data)} the same, with `--subject {_factory(data)}`."
        yield ""
    yield from _broken(first["broken"])
    yield f"Kept: {'; '.join(first['kept'])}."
    yield ""
    for data in group:
        if data["not_run"]:
            yield f"Not run{f' ({_own(data)})' if others else ''}: {data['not_run']}"
            yield ""


def _factory(data: dict[str, Any]) -> str:
    """Of the commands that show what is broken."""
    commands = (entry["inputs"]["command"].partition(" --subject ")[2] for entry in data["broken"])
    return str(next(rest.split()[0] for rest in commands if rest))


def _meanings(groups: list[list[dict[str, Any]]]) -> Iterator[str]:
    """Of the laws on the page whose names do not say it; those of attention by their own descriptions."""
    subjects = [data for group in groups for data in group]
    laws = {law for data in subjects for law in data["kept"]}
    laws |= {law for data in subjects for entry in data["broken"] for law in [entry["law"], *entry["law"].split(", ")]}
    described = MEANT | {
        name: inspect.cleandoc(law.__doc__ or "").partition("\n")[0] for name, (_, law) in LAWS.items()
    }
    yield "## What the laws say"
    yield ""
    yield "Those that are not named here say it themselves."
    yield ""
    yield "| law | |"
    yield "|---|---|"
    yield from (f"| {name} | {told.replace('|', chr(92) + '|')} |" for name, told in described.items() if name in laws)
    yield ""


def _variants(variants: list[dict[str, Any]]) -> Iterator[str]:
    yield "| factory | programs | operations | of them broke a law | slices: states, transitions, broke a law |"
    yield "|---|---:|---:|---:|---|"
    for each in variants:
        slices = "; ".join(f"{name} {', '.join(map(str, counts))}" for name, counts in each["slices"].items())
        numbers = f"{each['programs']:,} | {each['operations']:,} | {each['failed']:,}"
        yield f"| `{each['factory']}` | {numbers} | {slices} |"
    yield ""


def _broken(broken: list[dict[str, Any]]) -> Iterator[str]:
    """Laws that are broken for one reason stand together."""
    if not broken:
        yield "Broken: none."
    reasons: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for entry in broken:
        key = (entry.get("verdict", OPEN), entry.get("why", ""), entry.get("source", ""))
        reasons.setdefault(key, []).append(entry)
    for (verdict, why, source), entries in reasons.items():
        yield f"* {verdict[0].upper()}{verdict[1:]}. {why} {_source(source)}."
        for entry in entries:
            yield from _evidence(entry)
    yield ""


def _source(source: str) -> str:
    return f"[Source]({source})" if source.startswith("https://") and " " not in source else f"Source: {source}"


def _evidence(entry: dict[str, Any]) -> Iterator[str]:
    """Where the failure can be seen again."""
    who = f" on `{entry['factory'].partition(':')[2]}`" if "factory" in entry else ""
    detail = f": `{entry['detail']}`" if "detail" in entry else ""
    if "trace" in entry:
        path = Path(entry["trace"]).relative_to("docs").as_posix()
        yield f"  * **{entry['law']}**: [trace]({path}){who}{detail}."
        return
    yield f"  * **{entry['law']}**{who}{detail}:"
    yield ""
    lines = ("```console", f"$ {entry['inputs']['command']}", *entry["inputs"]["shows"].splitlines(), "```")
    yield from (f"    {line}" for line in lines)
    yield ""


def write() -> str:
    """Write the page, and return it."""
    page = render(load())
    (DOCUMENTS / "conformance.md").write_text(page, encoding="utf-8")
    return page


if __name__ == "__main__":
    write()
