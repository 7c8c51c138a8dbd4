"""Chapter 23. Worked examples: the figures of the paper, run.

Kwon et al., SOSP 2023, §4.3–4.4. Blocks hold four tokens. The placements are the paper's; any other would be as
legal, so they are given as choices.
"""

from collections.abc import Mapping, Sequence

from pagedkv.spec.blocks import Choices
from pagedkv.spec.state import State
from pagedkv.spec.words import Block, RequestId, Token

VOCABULARY = [
    "Four", "score", "and", "seven", "years", "ago", "our", "fathers", "brought", "mothers",
    "It", "was", "the", "best", "of", "times",
]  # fmt: skip


def text(words: str) -> tuple[Token, ...]:
    """Words as tokens.

    >>> text("Four score and")
    (0, 1, 2)
    """
    return tuple(VOCABULARY.index(word) for word in words.split())


def words(tokens: Sequence[Token]) -> str:
    """Tokens as words."""
    return " ".join(VOCABULARY[token] for token in tokens)


def place(placement: Mapping[RequestId, Sequence[Block]]) -> Choices:
    """Take the given blocks, by request and logical index."""
    return Choices(block=lambda state, request, logical: placement[request][logical])


def drawn(state: State) -> list[str]:
    """The pool as the paper draws it: for each used block its words and its reference count."""
    return [f"{block}: {words(state.contents[block])} (x{count})" for block, count in sorted(state.references.items())]


def figure_6() -> None:
    """Figure 6: one request. Seven prompt tokens fill one block and most of another; a third comes with the ninth.

    >>> from pagedkv.spec import Config, admit, append, commit
    >>> choices = place({"A": (7, 1, 3)})
    >>> s, _ = admit(State(Config(num_blocks=9, block_size=4)), "A", text("Four score and seven years ago our"),
    ...              choices=choices)
    >>> s, _ = commit(s, "A", 7)
    >>> s.requests["A"].table  # logical blocks 0 and 1; one slot is left
    (7, 1)
    >>> s, outcome = append(s, "A", text("fathers"), choices)
    >>> s.requests["A"].table, outcome.slots  # block 1, offset 3: no new block
    ((7, 1), (7,))
    >>> s, _ = commit(s, "A", 8)
    >>> s, outcome = append(s, "A", text("brought"), choices)
    >>> s.requests["A"].table, outcome.slots  # the last block was full: now one more
    ((7, 1, 3), (12,))
    """


def figure_7() -> None:
    """Figure 7: two requests in one pool. Each sees its own order; where they lie is no matter.

    >>> from pagedkv.spec import Config, admit, alpha, append, commit
    >>> choices = place({"A": (7, 1, 3), "B": (5, 2)})
    >>> s, _ = admit(State(Config(num_blocks=9, block_size=4)), "A",
    ...              text("Four score and seven years ago our"), choices=choices)
    >>> s, _ = admit(s, "B", text("It was the best of"), choices=choices)
    >>> s, _ = append(s, "A", text("fathers brought"), choices)
    >>> s, _ = append(s, "B", text("times"), choices)
    >>> s, _ = commit(s, "A", 9)
    >>> s, _ = commit(s, "B", 6)
    >>> for line in drawn(s):
    ...     print(line)
    1: years ago our fathers (x1)
    2: of times (x1)
    3: brought (x1)
    5: It was the best (x1)
    7: Four score and seven (x1)
    >>> words(alpha(s)["B"])
    'It was the best of times'
    """


def figure_8() -> None:
    """Figure 8: parallel sampling. Two samples share the prompt's blocks; the first to write the last one copies it.

    >>> from pagedkv.spec import Append, Batch, Config, admit, alpha, apply, commit, fork
    >>> choices = place({"A1": (7, 3), "A2": (7, 1)})
    >>> placed = place({"A1": (7, 1)})
    >>> s, _ = admit(State(Config(num_blocks=9, block_size=4)), "A1", text("Four score and seven years ago our"),
    ...              choices=placed)
    >>> s, _ = commit(s, "A1", 7)
    >>> s, _ = fork(s, "A1", "A2")
    >>> for line in drawn(s):
    ...     print(line)
    1: years ago our (x2)
    7: Four score and seven (x2)
    >>> step = Batch((Append("A1", text("fathers")), Append("A2", text("mothers"))))
    >>> s, outcomes = apply(s, step, choices)
    >>> outcomes[0].copies, outcomes[1].copies  # A1 copies block 1 to block 3; A2 is then its sole owner
    ((Copy(source=1, destination=3),), ())
    >>> s, _ = commit(s, "A1", 8)
    >>> s, _ = commit(s, "A2", 8)
    >>> for line in drawn(s):
    ...     print(line)
    1: years ago our mothers (x1)
    3: years ago our fathers (x1)
    7: Four score and seven (x2)
    >>> words(alpha(s)["A1"]), words(alpha(s)["A2"])[-7:]
    ('Four score and seven years ago our fathers', 'mothers')
    """
