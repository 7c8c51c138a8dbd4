"""The tests that the pool has always had. They pass."""

import pytest

from pagepool import OutOfPages, PagePool


def test_pages_are_lent_and_come_back() -> None:
    pool = PagePool(4, 2)
    handle = pool.open(5)
    assert len(pool.spare) == 1
    pool.close(handle)
    assert len(pool.spare) == 4


def test_a_shared_page_is_copied_before_it_is_written() -> None:
    pool = PagePool(4, 2)
    first = pool.open(3)
    second = pool.share(first)
    copy = pool.extend(second, 1)
    assert copy is not None
    assert copy[0] in pool.sequences[first].pages
    assert copy[1] in pool.sequences[second].pages


def test_the_rest_of_a_rejected_draft_comes_back() -> None:
    pool = PagePool(4, 2)
    handle = pool.open(2)
    pool.extend(handle, 4)
    pool.rewind(handle, 3)
    assert len(pool.spare) == 2


def test_an_empty_pool_refuses() -> None:
    with pytest.raises(OutOfPages):
        PagePool(2, 2).open(5)
