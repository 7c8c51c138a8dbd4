"""The bytes that kernels move: counted right, close to the least, and as the page in the docs says."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="Triton exists for Linux only")

from pagedkv.optimized.audit import roofline
from pagedkv.optimized.audit.access_log import Extent, LaunchAccess, ProgramAccess, spans_of

PAGE = Path(__file__).parents[2] / "docs" / "kernels" / "roofline.md"


def test_bytes_are_counted_once_a_program_and_by_argument() -> None:
    programs = [ProgramAccess((0, 0, 0)), ProgramAccess((1, 0, 0))]
    for program in programs:
        for _ in range(2):
            program.add("load", spans_of(torch.tensor([0, 4, 100]).numpy().astype("uint64"), 4))
    programs[1].add("store", spans_of(torch.tensor([8]).numpy().astype("uint64"), 8))
    access = LaunchAccess("k", (Extent("a", 0, 50), Extent("b", 100, 104)), programs)
    assert roofline.bytes_of(access, "load") == {"a": 16, "b": 8}
    assert roofline.bytes_of(access, "store") == {"a": 8}


@pytest.mark.parametrize(("length", "block_size", "window"), [(700, 16, None), (600, 1, None), (900, 64, 130)])
def test_a_decode_reads_each_key_and_value_that_it_sees_once(length: int, block_size: int, window: int | None) -> None:
    work = roofline.attention_work("", [length, 33], [1, 1], block_size, 4, window=window)
    parts = roofline.moved(work)
    caches = 2 * 128 * 2 * (min(length, window or length) + 33)
    queries = 2 * 4 * 128 * 2
    assert parts[0].loaded - caches >= queries
    assert sum(part.loaded + part.stored - part.scratch for part in parts) <= 1.06 * work.least


def test_writes_and_copies_move_nothing_twice() -> None:
    for work in (roofline.write_work(), roofline.copy_work()):
        (part,) = roofline.moved(work)
        assert part.loaded + part.stored <= 1.01 * work.least


def test_the_page_is_what_is_counted() -> None:
    """After a change of a kernel: make pages."""
    assert PAGE.read_text(encoding="utf-8") == roofline.page()
