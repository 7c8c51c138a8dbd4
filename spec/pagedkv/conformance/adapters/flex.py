"""torch's FlexAttention `PagedAttention` as a subject (`torch.nn.attention.experimental._paged_attention`).

It has a page table of which each request owns a row, `reserve(row, length)`, `erase(row)`, and no sharing. Which row a
request gets is its caller's affair: one that nobody has. `physical_to_logical`, by which the converted masks find the
position of a page, is the inverse of the page table. It is shown as the references: as many as there are rows that say
where in them a page stands.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pagedkv.conformance.adapters import third_party
from pagedkv.conformance.adapters.scheduler import Entry, Scheduled
from pagedkv.spec import Block, Config, Copy, Token
from pagedkv.spec.subject import Capabilities

PACKAGE = "torch==2.13.0"
ROWS = 32
"""Of the page table: more than a program has requests."""


class FlexSubject(Scheduled):
    """The page table and its inverse."""

    capabilities = Capabilities(reserve=True, preempt=True)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._tensor = third_party("torch", PACKAGE).tensor
        paged = third_party("torch.nn.attention.experimental._paged_attention", PACKAGE)
        self.pages: Any = paged.PagedAttention(config.num_blocks, config.block_size, ROWS, device="cpu")
        self.rows = list(range(ROWS))

    def _reserve(self, row: int, length: int) -> bool:
        try:
            self.pages.reserve(self._tensor([row]), self._tensor([length]))
        except AssertionError:  # how it says that there are not enough pages
            return False
        return True

    def enter(self, entry: Entry, reserve: int) -> int | None:
        if not self._reserve(self.rows[-1], reserve):
            return None
        entry.handle = self.rows.pop()
        return 0

    def grow(self, entry: Entry, tokens: tuple[Token, ...], length: int) -> bool:
        return self._reserve(entry.handle, length)

    def written(self, entry: Entry, computed: int) -> tuple[Copy, ...]:
        return ()

    def leave(self, entry: Entry, preempted: bool) -> None:
        self.pages.erase(self._tensor([entry.handle]))
        self.rows.append(entry.handle)

    def table(self, entry: Entry) -> tuple[Block, ...]:
        return tuple(block for block in self.pages.page_table[entry.handle].tolist() if block >= 0)

    def available(self) -> int:
        return len(self.pages.empty_pages)

    def references(self) -> Mapping[Block, int] | None:
        _, blocks = (self.pages.physical_to_logical >= 0).nonzero(as_tuple=True)
        return Counter(blocks.tolist())


class FlexTable(FlexSubject):
    """The page table alone."""

    def references(self) -> Mapping[Block, int] | None:
        return None
