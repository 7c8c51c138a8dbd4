"""docs/conformance.md, made of the numbers in docs/conformance/*.json. `python -m tests.adapters.page` writes it."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

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

A law that is broken comes with its minimal trace (`pagedkv replay TRACE --subject FACTORY` shows it again) or inputs,
and a verdict, which was given after reading the project's code, documentation and issues: a *bug*; a *documented
choice* that our laws do not allow for; *our misunderstanding*, where the law asks what was never promised; a *limit of
the adapter*.

This page is made by `python -m tests.adapters.page` of what `make adapters` measured.
"""


def load() -> list[dict[str, Any]]:
    """All subjects, block managers first, by name."""
    files = (DOCUMENTS / "conformance").glob("*.json")
    subjects = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    return sorted(subjects, key=lambda data: (KINDS.index(data["kind"]), data["subject"].lower()))


def render(subjects: Iterable[dict[str, Any]]) -> str:
    """The page."""
    subjects = list(subjects)
    return "\n".join([INTRODUCTION, *_summary(subjects), *(line for data in subjects for line in _section(data))])


def _summary(subjects: list[dict[str, Any]]) -> Iterator[str]:
    yield "| subject | version | tried | laws kept | laws broken |"
    yield "|---|---|---|---:|---|"
    for data in subjects:
        name = f"[{data['subject']}](#{_anchor(data['subject'])})"
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


def _section(data: dict[str, Any]) -> Iterator[str]:
    yield f"## {data['subject']}"
    yield ""
    seconds = f", {data['seconds']} s" if "seconds" in data else ""
    yield f"{data['package']} {data['version']}, {data['date']}, `{data['command']}`{seconds}."
    yield f"Exercised: {', '.join(data['capabilities']) or 'nothing beyond the least'}."
    yield ""
    if "variants" in data:
        yield from _variants(data["variants"])
    yield from _broken(data["broken"])
    yield f"Kept: {'; '.join(data['kept'])}."
    yield ""
    if data["not_run"]:
        yield f"Not run: {data['not_run']}"
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
        yield from (f"  * **{entry['law']}**: {_evidence(entry)}" for entry in entries)
    yield ""


def _source(source: str) -> str:
    return f"[Source]({source})" if source.startswith("https://") and " " not in source else f"Source: {source}"


def _evidence(entry: dict[str, Any]) -> str:
    """Where the failure can be seen again."""
    who = f" on `{entry['factory'].partition(':')[2]}`" if "factory" in entry else ""
    detail = f": `{entry['detail']}`" if "detail" in entry else ""
    if "trace" not in entry:
        return f"inputs{who}: `{json.dumps(entry['inputs'], ensure_ascii=False)}`{detail}."
    path = Path(entry["trace"])
    return f"[trace]({path.relative_to('docs').as_posix()}){who}{detail}."


def write() -> str:
    """Write the page, and return it."""
    page = render(load())
    (DOCUMENTS / "conformance.md").write_text(page, encoding="utf-8")
    return page


if __name__ == "__main__":
    print(write())
