"""Compiled code is kept from one process to the next, where it can be, and never outlives the text it was made of."""

import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pagedkv.optimized.loops import compiled as compiling
from pagedkv.optimized.loops.compiled import COMPLETE, IS_COMPILED, cache_folder, compiled, complete

SOURCES: Final = Path(compiling.__file__).parent
needs_numba: Final = pytest.mark.skipif(not IS_COMPILED, reason="nothing is compiled here")


@pytest.fixture
def loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the loops, which `cache_folder` takes for them; and a home of its own."""
    folder = tmp_path / "loops"
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compiling, "__file__", str(folder / "compiled.py"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    return folder


def occupy(place: Path) -> None:
    """A file where a folder would be made: nobody can make one there, whatever he may do elsewhere."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()


def test_it_lies_beside_the_sources(loops: Path) -> None:
    folder = cache_folder()
    assert folder is not None
    assert folder.is_dir()
    assert folder.parent == loops / "__pycache__"
    assert cache_folder() == folder


def test_or_with_the_other_caches_of_the_user(loops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    occupy(loops / "__pycache__")
    folder = cache_folder()
    assert folder is not None
    assert folder.is_dir()
    assert folder.parent == tmp_path / "home" / ".cache" / "pagedkv"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache_folder() == tmp_path / "caches" / "pagedkv" / folder.name


def test_or_nowhere(loops: Path, tmp_path: Path) -> None:
    occupy(loops / "__pycache__")
    occupy(tmp_path / "home" / ".cache")
    assert cache_folder() is None


def test_a_folder_that_is_there_and_cannot_be_written_is_no_place(
    loops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an installation by somebody else."""
    beside, access = cache_folder(), os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != beside and access(path, mode))
    folder = cache_folder()
    assert folder is not None
    assert folder.parent == tmp_path / "home" / ".cache" / "pagedkv"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert cache_folder() is None


def test_what_is_complete_is_used_also_where_it_can_only_be_read(
    loops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an image that runs under another number than it was made with: by a copy, before a place is filled anew."""
    beside = cache_folder()
    assert beside is not None
    (beside / COMPLETE).touch()
    (beside / "deeper").mkdir()
    (beside / "deeper" / "code").write_text("compiled")
    (beside / "deeper" / "code").chmod(0o400)
    (beside / "deeper").chmod(0o500)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = cache_folder()
    assert folder is not None
    assert (folder.name, folder.parent.parent) == (beside.name, tmp_path)
    assert (folder / "deeper" / "code").read_text() == "compiled"
    (folder / "deeper" / "code").write_text("anew")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert cache_folder() is None


def test_others_may_read_what_is_complete(loops: Path) -> None:
    """If they may read the sources: numba makes its files for their owner alone."""
    folder = cache_folder()
    assert folder is not None
    (folder / "deeper").mkdir(mode=0o700)
    (folder / "deeper" / "code").touch(mode=0o600)
    Path(compiling.__file__).chmod(0o644)
    complete(folder)
    assert [path.stat().st_mode & 0o777 for path in (folder / "deeper", folder / "deeper" / "code")] == [0o755, 0o644]
    Path(compiling.__file__).chmod(0o600)
    (folder / "deeper" / "other").touch(mode=0o600)
    complete(folder)
    assert (folder / "deeper" / "other").stat().st_mode & 0o777 == 0o600


@needs_numba
def test_from_a_copy_nothing_is_compiled() -> None:
    """In a process that may write nowhere but among temporary files."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = partial(subprocess.run, check=True, env=environment, capture_output=True, text=True)
    run([sys.executable, "-c", "from pagedkv.optimized import warm_up; warm_up()"])
    code = (
        "import os; os.access = lambda path, mode: False\n"
        "from pagedkv.optimized import warm_up; warm_up()\n"
        "from pagedkv.optimized.loops import calls, compiled\n"
        "print(compiled.FOLDER)\n"
        "print(*(sum(counts.values()) for counts in (calls.seat.stats.cache_misses, calls.seat.stats.cache_hits)))"
    )
    folder, counts = run([sys.executable, "-c", code]).stdout.splitlines()
    assert Path(folder).parent.name.startswith("pagedkv-")
    assert counts == "0 1"
    assert not Path(folder).exists()


def test_numba_cache_dir_goes_first_and_there_is_no_other(
    loops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
    folder = cache_folder()
    assert folder is not None
    assert folder.parent == tmp_path / "chosen"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "taken" / "below"))
    occupy(tmp_path / "taken")
    assert cache_folder() is None


def test_nobody_needs_a_home(loops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor a name, as in a container that runs under any number."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as it answers where there is none
    folder = cache_folder()
    assert folder is not None
    assert folder.parent == loops / "__pycache__"
    shutil.rmtree(folder.parent)
    occupy(folder.parent)
    assert cache_folder() is None


@pytest.mark.parametrize("name", sorted(path.name for path in SOURCES.glob("*.py")))
def test_another_text_of_any_file_is_another_folder(loops: Path, name: str) -> None:
    """Also of one that is only called from where nothing has changed."""
    before = cache_folder()
    with (loops / name).open("a") as file:
        file.write("# another text\n")
    assert cache_folder() != before


def test_so_is_another_compiler(loops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {cache_folder()}
    for numba in (None, SimpleNamespace(__version__="0.0"), SimpleNamespace(__version__="0.1")):
        monkeypatch.setattr(compiling, "numba", numba)
        folders.add(cache_folder())
    monkeypatch.setattr(sys, "version", "another")
    assert len(folders | {cache_folder()}) == 5


def twice(number: int) -> int:
    return 2 * number


@needs_numba
def test_without_a_place_it_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """And numba is left as it was."""
    before = compiling.numba.config.CACHE_DIR
    monkeypatch.setattr(compiling, "cache_folder", lambda: None)
    function: Any = compiled(twice)
    assert (function(21), len(function.signatures)) == (42, 1)
    assert before == compiling.numba.config.CACHE_DIR


USE: Final = """
from pagedkv.optimized import BlockManager
from pagedkv.optimized.loops import calls
manager = BlockManager(8, 2)
manager._state.paths.root("")
print(sum(calls.make_root.stats.cache_hits.values()), sum(calls.make_root.stats.cache_misses.values()))
"""


@needs_numba
def test_the_next_process_finds_what_this_one_has_compiled(tmp_path: Path) -> None:
    path = os.pathsep.join(map(str, filter(None, sys.path)))
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path)}
    seen = [
        subprocess.run([sys.executable, "-c", USE], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert [each.split() for each in seen] == [["0", "1"], ["1", "0"]]
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("loops-")
