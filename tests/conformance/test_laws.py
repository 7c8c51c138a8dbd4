"""The list of laws is the list: what the kit can report, and nothing else."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pagedkv.conformance.differential import compare
from pagedkv.conformance.laws import GROUPS, applicable
from pagedkv.spec.subject import Capabilities

SPEC = Path(__file__).parent.parent.parent / "spec" / "pagedkv"
KIT = SPEC / "conformance"
SOURCES = sorted([*KIT.glob("*/*.py"), *(SPEC / "spec").glob("*.py")])
REPORTING = {"Violation", "Difference", "IllegalChoice"}
LAWS = [law.name for members in GROUPS.values() for law in members]


@cache
def constants() -> dict[str, str]:
    """The texts that have a name."""
    found = {}
    for node in (node for path in SOURCES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))):
        match node:
            case ast.AnnAssign(ast.Name(name), _, ast.Constant(str(text))):
                found[name] = text
    return found


def called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def literals(node: ast.expr) -> Iterator[str]:
    """The texts that an expression can be; of an f-string what it begins with."""
    match node:
        case ast.Constant(str(text)) | ast.JoinedStr([ast.Constant(str(text)), *_]):
            yield text
        case ast.IfExp(_, body, other):
            yield from literals(body)
            yield from literals(other)


def reported(path: Path) -> Iterator[str]:
    """The laws that a module reports, or how they begin."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = constants()
    for node in ast.walk(tree):
        match node:
            case ast.Assign([ast.Name("law")], value):
                yield from literals(value)
            case ast.Call(_, [ast.Name(name), *_]) if called(node) in {*REPORTING, "told"} and name in named:
                yield named[name]
            case ast.Call(_, [first, *_]) if called(node) in REPORTING:
                yield from literals(first)
            case ast.Call(_, args) if called(node) == "_compare":
                yield from (text for arg in args for text in literals(arg))
    if path.name == "running.py":  # which chooses among its constants elsewhere
        yield from (named[name] for name in ("SURVIVES", "IN_TIME", "ONE_LINE"))


def test_every_law_that_is_reported_is_listed() -> None:
    found = {text for path in SOURCES for text in reported(path)} | set(compare._LAWS_OF_ANSWERS.values())
    assert len(found) > 30
    assert {text for text in found if not any(law.startswith(text) for law in LAWS)} == set()


def test_every_law_that_is_listed_is_reported() -> None:
    found = {text for path in SOURCES for text in reported(path)} | set(compare._LAWS_OF_ANSWERS.values())
    assert [law for law in LAWS if not any(law.startswith(text) for text in found if text)] == []
    assert len(set(LAWS)) == len(LAWS)


def test_what_a_law_needs_is_a_capability() -> None:
    needs = {name for members in GROUPS.values() for law in members for need in law.needs for name in need.split()}
    assert {need for need in needs if not hasattr(Capabilities(), need)} == set()


def test_more_capabilities_make_more_laws_apply() -> None:
    least, more = applicable(Capabilities()), applicable(Capabilities(fork=True, swap=True))
    assert set(least) < set(more) < set(LAWS)
