"""Chapter 2. Meaning (layer L0).

What a KV cache *means* has no blocks in it: each request is a tuple of tokens. Everything that paging may not change
is an equality here. Order: append is concatenation. Isolation: an operation names the one request that it changes.
Copy-on-write: fork copies the tuple, so a child's append cannot reach its parent. The chapters after this one say
where the tokens lie; `refinement.alpha` maps them back, and alpha(L1) = L0 is checked after every operation.

>>> m = admit({}, "a", (1, 2, 3))
>>> m = append(fork(m, "a", "b"), "b", (9,))
>>> m
{'a': (1, 2, 3), 'b': (1, 2, 3, 9)}
"""

from collections.abc import Mapping
from typing import TypeAlias

from pagedkv.spec.operations import Admit, Append, Batch, Fork, Free, Operation, Truncate
from pagedkv.spec.words import RequestId, Token

Meaning: TypeAlias = Mapping[RequestId, tuple[Token, ...]]


def admit(meaning: Meaning, request: RequestId, tokens: tuple[Token, ...]) -> Meaning:
    """A new request with its prompt."""
    return {**meaning, request: tokens}


def append(meaning: Meaning, request: RequestId, tokens: tuple[Token, ...]) -> Meaning:
    """The request goes on; what was there stays, in order."""
    return {**meaning, request: meaning[request] + tokens}


def fork(meaning: Meaning, parent: RequestId, child: RequestId) -> Meaning:
    """The child is another request with the same tokens."""
    return {**meaning, child: meaning[parent]}


def truncate(meaning: Meaning, request: RequestId, length: int) -> Meaning:
    """The tokens at positions >= length are taken back."""
    return {**meaning, request: meaning[request][:length]}


def free(meaning: Meaning, request: RequestId) -> Meaning:
    """The request is gone.

    >>> free({"a": (1,), "b": (2,)}, "a")
    {'b': (2,)}
    """
    return {other: tokens for other, tokens in meaning.items() if other != request}


def apply(meaning: Meaning, operation: Operation) -> Meaning:
    """The meaning after an operation that was answered with `Ok`.

    Every other operation (reserve, commit, preempt, resume, the prefix index, steps, permute) only changes where or
    whether KV lies, and is the identity here. A batch is applied row by row, by the caller who knows which were Ok.

    >>> apply({"a": (1, 2)}, Truncate("a", 1))
    {'a': (1,)}
    """
    match operation:
        case Admit(request, tokens):
            return admit(meaning, request, tokens)
        case Append(request, tokens):
            return append(meaning, request, tokens)
        case Fork(parent, child):
            return fork(meaning, parent, child)
        case Truncate(request, length):
            return truncate(meaning, request, length)
        case Free(request):
            return free(meaning, request)
        case Batch():
            raise TypeError("a batch has one outcome a row: apply its rows")
        case _:
            return meaning
