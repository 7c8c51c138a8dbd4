"""No text of the kit or the command says "1 operations": numbers stand before their nouns through `counted` alone."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from pagedkv.conformance.counted import counted

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = [*(ROOT / "spec/pagedkv/conformance").rglob("*.py"), *(ROOT / "tools/pagedkv/cli").rglob("*.py")]
CONSTANT: Final = re.compile(r"[A-Z_]+\b")


def trees() -> Iterator[tuple[Path, ast.AST]]:
    for path in SOURCES:
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def nouns(tree: ast.AST) -> Iterator[str]:
    """Those that `counted` is called with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "counted":
            yield from (str(word.value) for word in node.args[1:2] if isinstance(word, ast.Constant))


def bare(tree: ast.AST, plurals: set[str]) -> Iterator[str]:
    """Integers, neither constant nor a name, that an f-string has right before one of these nouns."""
    for text in ast.walk(tree):
        if not isinstance(text, ast.JoinedStr):
            continue
        for value, after in pairwise(text.values):
            if not (isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant)):
                continue
            noun = re.match(r" ([a-z ]+)", str(after.value))
            written = ast.unparse(value.value)
            measured = value.format_spec is not None and ast.unparse(value.format_spec)[-2] in "efg%"
            if noun and not measured and not CONSTANT.match(written) and written != "name":
                yield from (f"{written} {plural}" for plural in plurals if re.match(rf"{plural}\b", noun[1]))


def test_one_is_no_plural() -> None:
    plurals = {noun for _, tree in trees() for noun in nouns(tree)} | {"failures", "cases", "laws", "subjects"}
    assert {"operations", "programs", "states", "launches"} <= plurals
    assert [f"{path.name}: {found}" for path, tree in trees() for found in bare(tree, plurals)] == []


def test_what_is_bare_is_found() -> None:
    source = "f'{n:,} states'; f'{len(x)} states of'; f'{MOST} states'; f'{x:.1f} states'; f'{x} statesman'"
    assert [*bare(ast.parse(source), {"states"})] == ["n states", "len(x) states"]


def test_numbers_are_told_with_their_noun() -> None:
    assert [counted(n, "launches") for n in (0, 1, 1_000)] == ["0 launches", "1 launch", "1,000 launches"]
