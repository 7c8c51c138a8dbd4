"""Texts for ids: requests, namespaces and steps are any hashable values to an engine, and text in a trace.

>>> names = Names(is_word)
>>> [names.text(name) for name in ("r-1", ("tenant", 7), "two words", 7, "7", ("tenant", 7))]
['r-1', '~tenant.7', '~two.words', '~7', '7', '~tenant.7']
>>> names.id('~tenant.7'), names.id('r-1')
(('tenant', 7), 'r-1')
"""

import re
from collections.abc import Callable, Hashable
from typing import Final, TypeGuard

_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{0,80}")


def is_word(name: Hashable) -> TypeGuard[str]:
    """Letters, digits, `_`, `.` and `-`, 80 at most: what can be read and written without knowing how JSON quotes."""
    return type(name) is str and _WORD.fullmatch(name) is not None


def is_text(name: Hashable) -> TypeGuard[str]:
    """What a trace can have as it is: text that does not begin as those do that are made here."""
    return type(name) is str and not name.startswith("~") and not any("\ud800" <= c <= "\udfff" for c in name)


class Names:
    """The texts of ids: the same for the same id, and of no other. What is `plain` stands for itself."""

    def __init__(self, plain: Callable[[Hashable], TypeGuard[str]]) -> None:
        self.plain = plain
        self._texts: dict[Hashable, str] = {}
        self._ids: dict[str, Hashable] = {}

    def text(self, name: Hashable) -> str:
        """The text of an id."""
        if self.plain(name):
            return name
        if name not in self._texts:
            stem = "~" + re.sub(r"[^A-Za-z0-9_.-]+", ".", str(name)).strip(".")[:60]
            text, number = stem, 1
            while text in self._ids:
                number += 1
                text = f"{stem}~{number}"
            self._texts[name], self._ids[text] = text, name
        return self._texts[name]

    def id(self, text: str) -> Hashable:
        """The id of a text; a text that was made for none is one."""
        return self._ids.get(text, text)

    def forget(self, name: Hashable) -> None:
        """The id is not used any more: it, or another one, may get the text."""
        self._ids.pop(self._texts.pop(name, ""), None)
