"""Chapter 1b. Misuse: calls that can never be right."""


class Misuse(ValueError):
    """A call that can never be right. Names the `argument`, its `value` and what is `allowed`; nothing changed.

    >>> print(Misuse("block_size", 0, "an integer >= 1"))
    block_size=0 is not allowed: expected an integer >= 1
    """

    def __init__(self, argument: str, value: object, allowed: str) -> None:
        super().__init__(f"{argument}={value!r} is not allowed: expected {allowed}")
        self.argument, self.value, self.allowed = argument, value, allowed


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
