"""The rules of the house that a reader relies on, enforced on the text of the code."""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOTS = ("spec", "reference", "optimized", "tools")
SOURCES = sorted(path for root in ROOTS for path in (ROOT / root / "pagedkv").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
KERNELS = ROOT / "optimized" / "pagedkv" / "optimized" / "kernels"
LOOPS = ROOT / "optimized" / "pagedkv" / "optimized" / "loops"
MAKING = ("arrays.py", "compiled.py", "memory.py")
"""Types, the compiler, and the arrays of a new manager."""
CHAPTERS = ROOT / "spec" / "pagedkv" / "spec"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

MAY_IMPORT = {
    "spec": {"numpy", "pagedkv.spec"},
    "reference": {"numpy", "pagedkv.spec", "pagedkv.reference"},
    "optimized": {"numpy", "torch", "triton", "numba", "llvmlite", "pagedkv.spec", "pagedkv.optimized"},
    "conformance": {"numpy", "hypothesis", "pytest", "pagedkv.spec", "pagedkv.reference", "pagedkv.conformance"},
}
"""Beside the standard library, by subpackage. What is not listed (the tools) may import everything but tests."""


def module_name(path: Path) -> str:
    """`pagedkv.spec.words` for spec/pagedkv/spec/words.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str, module: str, is_package: bool = False) -> Iterator[str]:
    """The absolute names of all modules that a module imports, wherever in its text it does."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(base, names, level):
                package = module.split(".")[: len(module.split(".")) - level + is_package] if level else []
                origin = ".".join([*package, *([base] if base else [])])
                yield from (f"{origin}.{alias.name}" for alias in names)
            case ast.Call(ast.Name("__import__" | "import_module") | ast.Attribute(attr="import_module"), args):
                yield from (str(arg.value) for arg in args[:1] if isinstance(arg, ast.Constant))


def forbidden(source: str, module: str, is_package: bool = False) -> list[str]:
    """The imports of a module that its subpackage does not permit."""
    allowed = MAY_IMPORT.get(module.split(".")[1])
    wrong = []
    for name in imported(source, module, is_package):
        top = name.split(".")[0]
        ours = top == "pagedkv"
        unit = ".".join(name.split(".")[:2]) if ours else top
        if top == "tests" or (allowed is not None and top not in sys.stdlib_module_names and unit not in allowed):
            wrong.append(name)
    return wrong


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def show(path: Path) -> str:
    return str(path.relative_to(ROOT))


def every(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=show)


@every(SOURCES)
def test_imports_run_one_way(path: Path) -> None:
    assert forbidden(path.read_text(encoding="utf-8"), module_name(path), path.name == "__init__.py") == []


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("import torch", "pagedkv.spec.words"),
        ("def f():\n    from pagedkv.reference import manager", "pagedkv.spec.words"),
        ("from pagedkv.reference.manager import Manager", "pagedkv.optimized.manager"),
        ("from pagedkv import reference", "pagedkv.optimized.manager"),
        ("from ..reference import manager", "pagedkv.optimized.manager"),
        ("from importlib import import_module\nimport_module('pagedkv.reference')", "pagedkv.optimized.manager"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pagedkv.optimized", "pagedkv.reference.pool"),
        ("import pagedkv.optimized", "pagedkv.conformance.search.machine"),
        ("import tests.strategies", "pagedkv.cli.main"),
    ],
)
def test_the_import_rule_sees(source: str, module: str) -> None:
    assert len(forbidden(source, module)) == 1


def test_relative_imports_within_a_package_are_its_own() -> None:
    assert forbidden("from . import pool\nfrom .pool import Pool", "pagedkv.optimized", is_package=True) == []
    assert forbidden("from . import pool\nfrom .pool import Pool", "pagedkv.optimized.manager") == []


@pytest.mark.parametrize("package", sorted({module_name(path).split(".")[1] for path in SOURCES} - {"optimized"}))
def test_parts_of_a_package_can_be_read_one_after_another(package: str) -> None:
    """No two of its folders and files need each other, not even by an import within a function.

    In `optimized` a launch can interpret itself, by the audit, which reads the launches that ship.
    """
    needs: dict[str, set[str]] = {}
    for path in SOURCES:
        part = part_of(module_name(path))
        if module_name(path).split(".")[1] == package:
            source, is_package = path.read_text(encoding="utf-8"), path.name == "__init__.py"
            needs.setdefault(part, set()).update(map(part_of, imported(source, module_name(path), is_package)))
    whole = f"pagedkv.{package}"  # a name of the package itself is one of its `__init__`
    for part, found in needs.items():
        ours = {name if name in needs else whole for name in found if name.startswith(f"{whole}.")}
        needs[part] = ours - {part}
    TopologicalSorter(needs).prepare()  # raises CycleError


def part_of(module: str) -> str:
    """The folder or file of a package that a module, or a name in one, belongs to."""
    return ".".join(module.split(".")[:3])


@every(sorted(LOOPS.glob("*.py")))
def test_loops_are_compiled_and_make_no_arrays(path: Path) -> None:
    """They are compiled without a count of references, so whatever they made would never be given back."""
    text = path.read_text(encoding="utf-8")
    assert path.name in MAKING or not [name for name in imported(text, module_name(path)) if name.startswith("numpy")]
    bare = [function.name for function in functions(path) if not function.decorator_list]
    assert path.name in MAKING or bare == []


def test_the_namespace_stays_one() -> None:
    assert [show(path) for root in ROOTS for path in (ROOT / root).glob("pagedkv/__init__.py")] == []
    assert [show(path) for root in ROOTS for path in (ROOT / root).glob("__init__.py")] == []


def test_every_subpackage_is_marked_as_typed() -> None:
    packages = {path for root in ROOTS for path in (ROOT / root / "pagedkv").iterdir() if [*path.rglob("*.py")]}
    assert [show(path) for path in sorted(packages) if not (path / "py.typed").exists()] == []


@every([path for path in SOURCES + TESTS if KERNELS not in path.parents])
def test_files_and_functions_are_short(path: Path) -> None:
    limit = 150 if path.parent == CHAPTERS else 300
    assert len(path.read_text(encoding="utf-8").splitlines()) <= limit
    lengths = {function.name: (function.end_lineno or 0) - function.lineno + 1 for function in functions(path)}
    assert {name: lines for name, lines in lengths.items() if lines > 50} == {}


@every([path for path in SOURCES + TESTS if path.stat().st_size])
def test_a_module_says_what_and_why(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@every(SOURCES)
def test_public_functions_are_documented(path: Path) -> None:
    module = ast.parse(path.read_text(encoding="utf-8"))
    public = [node for node in module.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    assert [node.name for node in public if not ast.get_docstring(node)] == []


SILENCED = re.compile(r"#\s*(noqa|type:\s*ignore)")
WITH_REASON = re.compile(r"#\s*(noqa:\s*[A-Z]+[0-9]+(,\s*[A-Z]+[0-9]+)*|type:\s*ignore\[[a-z, -]+\])\s+#\s*\w.{5,}")


def silenced_without_reason(source: str) -> list[str]:
    """Comments that switch a checker off and do not say, after a second #, why."""
    comments = [t.string for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT]
    return [text for text in comments if SILENCED.search(text) and not WITH_REASON.search(text)]


@every(SOURCES + TESTS)
def test_a_checker_is_silenced_with_a_reason(path: Path) -> None:
    assert silenced_without_reason(path.read_text(encoding="utf-8")) == []


def test_the_silence_rule_sees() -> None:
    assert silenced_without_reason("x = 1  # noqa: E501\ny = 2  # type: ignore\nz = 3  # noqa\n") != []
    assert len(silenced_without_reason("x = 1  # noqa: E501  # a table\ny = 2  # type: ignore[misc]\n")) == 1


IMPORT_ALL = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "triton", "numba", "hypothesis", "pytest", "_pytest"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
sys.path[:0] = sys.argv[2:]
package = importlib.import_module(sys.argv[1])
if sys.argv[1] in ("pagedkv.spec", "pagedkv.reference"):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
"""


@pytest.mark.parametrize("package", ["pagedkv.spec", "pagedkv.reference", "pagedkv.optimized", "pagedkv.cli.main"])
def test_imports_without_any_extra(package: str) -> None:
    paths = [str(ROOT / root) for root in ROOTS]
    run = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, package, *paths], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stderr


def test_nothing_that_ships_is_ignored() -> None:
    """What .gitignore names is left out of the wheel, too, whether git has it or not."""
    files = [path for root in ROOTS for path in (ROOT / root).rglob("*") if path.suffix in (".py", ".json", ".jsonl")]
    names = "\n".join(path.relative_to(ROOT).as_posix() for path in files)
    told = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"],
        cwd=ROOT,
        input=names,
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode > 1:
        pytest.skip(f"git does not tell: {told.stderr.strip()}")
    assert told.stdout.splitlines() == []


def test_development_versions_are_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [project["optional-dependencies"][extra] for extra in ("dev", "torch", "cpu", "gpu", "conformance")]
    wanted = [*project["dependencies"], *(requirement for extra in extras for requirement in extra)]
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "constraints-dev.txt").read_text(encoding="utf-8"), re.MULTILINE)
    names = {re.match(r"[\w.-]+", item)[0] for item in wanted} - {"pagedkv"}  # type: ignore[index]  # each has a name
    assert names - set(pinned) == set()


@every(DOCUMENTS)
def test_links_in_documents_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []
