"""Subjects by name: the built-in ones, anybody's as `module:factory`, and those in a process of their own."""

from typing import Final

from pagedkv.conformance.importing import BUILT_IN, imported
from pagedkv.spec import Misuse
from pagedkv.spec.subject import SubjectFactory

WAYS: Final = ("process", "command")
FORMS: Final = f"{', '.join(BUILT_IN)}, module:factory, process: before one of these, or command: before a program"
"""Of a name."""


def subject(name: str, *, limit_s: float | None = None) -> SubjectFactory:
    """The factory behind a name; an attribute of an attribute is written with a dot.

    * `reference`, `optimized`, `device`, and `module:factory`: in this process.
    * `process:optimized`, `process:module:factory`: in a Python process of its own.
    * `command:./my_subject --flag`: a program that speaks the protocol (`docs/protocol.md`).

    `limit_s`: seconds that an operation may take in a process of its own, 10 if not given; in this one it has those of
    `in_time`.
    Raises `Misuse`, and nothing else: a module that raises while it is imported is told with what it raised, and where.

    >>> from pagedkv.spec import Config
    >>> subject("reference")(Config(num_blocks=2, block_size=4)).capabilities.fork
    True
    >>> subject("nobody")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    pagedkv.spec.misuse.Misuse: subject='nobody' is not allowed: expected reference, optimized, device, ...
    """
    kind, rest = way_of(name, limit_s, WAYS)
    if not kind:
        return imported(name, FORMS)
    try:
        from pagedkv.conformance.process import remote  # noqa: PLC0415  # needs a POSIX system
    except ImportError as error:
        raise Misuse("subject", name, f"a POSIX system for a process of its own ({error})") from error
    if kind == "command":
        return remote.command(rest, limit_s=limit_s)
    if (rest not in BUILT_IN and not all(rest.partition(":"))) or rest.startswith(tuple(f"{way}:" for way in WAYS)):
        raise Misuse("subject", name, FORMS)
    return remote.python(rest, limit_s=limit_s)


def way_of(name: str, limit_s: float | None, ways: tuple[str, ...]) -> tuple[str, str]:
    """What stands before a name for a process of its own, one of `ways`, and the rest; nothing, for this process.

    Raises `Misuse` if there is a limit, which is for a process of its own.

    >>> way_of("process:optimized", 2.0, ("process",)), way_of("optimized", None, ("process",))
    (('process', 'optimized'), ('', 'optimized'))
    """
    kind, _, rest = name.partition(":")
    if kind in ways:
        return kind, rest
    if limit_s is not None:
        raise Misuse("limit_s", limit_s, f"a subject in a process of its own, which {name} is not: process:{name}")
    return "", name
