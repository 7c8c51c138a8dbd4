"""A small allocator of KV pages, as an inference server might have it: somebody's own, with words of its own.

Sequences are known by a handle. `share` lets a second sequence start where the first one is, with the same pages; the
one that writes first gets a page of its own (`extend` tells which page is to be copied where). `rewind` takes back
tokens that a draft model proposed and the server rejected.
"""

from dataclasses import dataclass


class OutOfPages(Exception):
    """There are fewer pages left than are needed; nothing has changed."""


@dataclass
class Sequence:
    """What one handle stands for."""

    pages: list[int]
    length: int


class PagePool:
    """Pages of `page_tokens` tokens, lent to sequences."""

    def __init__(self, num_pages: int, page_tokens: int) -> None:
        self.page_tokens = page_tokens
        self.spare = list(range(num_pages))
        self.users = [0] * num_pages
        self.sequences: dict[int, Sequence] = {}
        self.next_handle = 0

    def open(self, length: int) -> int:
        """A new sequence of `length` tokens; its handle."""
        return self._add(Sequence(self._take(self._pages_for(length)), length))

    def share(self, handle: int) -> int:
        """A second sequence that begins as the first one is; its handle. Takes no page."""
        origin = self.sequences[handle]
        for page in origin.pages:
            self.users[page] += 1
        return self._add(Sequence(list(origin.pages), origin.length))

    def extend(self, handle: int, count: int) -> tuple[int, int] | None:
        """Make room for `count` more tokens. A pair (from, to): the content of that page is to be copied first."""
        sequence = self.sequences[handle]
        last = sequence.length // self.page_tokens
        shared = last < len(sequence.pages) and self.users[sequence.pages[last]] > 1
        more = self._pages_for(sequence.length + count) - len(sequence.pages)
        taken = self._take(more + shared)
        copy = None
        if shared:
            copy = (sequence.pages[last], taken.pop())
            self._give_back([copy[0]])
            sequence.pages[last] = copy[1]
        sequence.pages += taken
        sequence.length += count
        return copy

    def rewind(self, handle: int, length: int) -> None:
        """Forget the tokens from `length` on."""
        sequence = self.sequences[handle]
        kept = self._pages_for(length)
        self.spare += sequence.pages[kept:]
        del sequence.pages[kept:]
        sequence.length = length

    def close(self, handle: int) -> None:
        """The sequence is done."""
        self._give_back(self.sequences.pop(handle).pages)

    def _pages_for(self, length: int) -> int:
        return -(-length // self.page_tokens)

    def _add(self, sequence: Sequence) -> int:
        self.next_handle += 1
        self.sequences[self.next_handle] = sequence
        return self.next_handle

    def _take(self, count: int) -> list[int]:
        if count > len(self.spare):
            raise OutOfPages(f"{count} needed, {len(self.spare)} left")
        taken = [self.spare.pop() for _ in range(count)]
        for page in taken:
            self.users[page] = 1
        return taken

    def _give_back(self, pages: list[int]) -> None:
        for page in pages:
            self.users[page] -= 1
            if not self.users[page]:
                self.spare.append(page)
