"""Chapter 1b. Misuse: calls that can never be right."""

import reprlib


class _Short(reprlib.Repr):
    """Values as a message shows them: whole if they are short, else with `...` for what is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.maxtuple = self.maxlist = self.maxset = self.maxfrozenset = self.maxdict = self.maxdeque = 20
        self.maxstring = self.maxother = 200
        self.maxlong = 60

    def repr_int(self, x: int, level: int) -> str:
        """Python writes no more than some thousand digits."""
        return super().repr_int(x, level) if x.bit_length() < 4_000 else f"<an integer of {x.bit_length()} bits>"


_SHORT = _Short()


def shown(value: object) -> str:
    """A value as a message shows it, whatever it is: also what is huge, or cannot show itself."""
    try:
        return _SHORT.repr(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # what belongs to others may do anything
        return f"<a {type(value).__name__} that cannot be shown>"


class Misuse(ValueError):
    """A call that can never be right. Names the `argument`, its `value` and what is `allowed`; nothing changed.

    >>> print(Misuse("block_size", 0, "an integer >= 1"))
    block_size=0 is not allowed: expected an integer >= 1

    `value` is the object itself; the message stays short, however long that is:

    >>> len(str(Misuse("tokens", [0.5] * 1_000_000, "integers"))) < 500
    True
    """

    def __init__(self, argument: str, value: object, allowed: str) -> None:
        super().__init__(f"{argument}={shown(value)} is not allowed: expected {allowed}")
        self.argument, self.value, self.allowed = argument, value, allowed

    def __reduce__(self) -> tuple[object, ...]:
        """Made of its three parts again: an exception is pickled with its message alone."""
        return type(self), (self.argument, self.value, self.allowed), {"args": self.args}


def check_integer(name: str, value: object, least: int) -> None:
    """An integer (no bool) that is not too small."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise Misuse(name, value, f"an integer >= {least}")


def check_id(name: str, value: object) -> None:
    """Ids and namespaces are hashable."""
    try:
        hash(value)
    except TypeError:
        raise Misuse(name, value, "a hashable value") from None
