"""Subjects of attention by name: `module:factory`, in this process or one of its own."""

from collections.abc import Callable
from typing import Any, Final

from pagedkv.conformance.attention.held import Held
from pagedkv.conformance.differential.violation import raised
from pagedkv.conformance.importing import imported, install_hint
from pagedkv.conformance.subjects import way_of
from pagedkv.spec.attention_subject import AttentionCapabilities, AttentionSubject
from pagedkv.spec import Misuse

FORMS: Final = "module:factory, or process: before it"
"""Of a name."""


def made(name: str, *, limit_s: float | None = None) -> AttentionSubject | Held:
    """The subject that the factory behind a name makes.

    * `module:factory`: in this process, where it has all the time that it takes.
    * `process:module:factory`: in a Python process of its own, where a check may take `limit_s` seconds (`apart`).

    Raises `Misuse`, and nothing else: what cannot be imported, made or launched is told in a line.

    >>> made("pagedkv.reference.attention:ReferenceAttention").capabilities.window
    True
    >>> made("nowhere")
    Traceback (most recent call last):
    ...
    pagedkv.spec.misuse.Misuse: subject='nowhere' is not allowed: expected module:factory, or process: before it
    """
    kind, rest = way_of(name, limit_s, ("process",))
    if not kind:
        return made_by(name, factory_of(name))
    try:
        from pagedkv.conformance.attention.apart import Apart  # noqa: PLC0415  # needs a POSIX system
    except ImportError as error:
        raise Misuse("subject", name, f"a POSIX system for a process of its own ({error})") from error
    return Apart(rest, limit_s=limit_s)


def factory_of(name: str) -> Callable[[], object]:
    """What `module:factory` names. `Misuse` as above."""
    if not all(name.partition(":")) or name.startswith(("process:", "command:")):
        raise Misuse("subject", name, FORMS)
    factory: Any = imported(name)
    found: Callable[[], object] = factory
    return found


def made_by(name: str, factory: Callable[[], object]) -> AttentionSubject:
    """What the factory of this name makes, if it is a subject. `Misuse` as above."""
    try:
        subject: Any = factory()
        wanted = ["name", "capabilities", "rounding", "attend"]
        if getattr(getattr(subject, "capabilities", None), "writes", False):
            wanted += ["write_kv", "copy_blocks"]
        missing = [each for each in wanted if not hasattr(subject, each)]
        capabilities, called = (getattr(subject, each, None) for each in ("capabilities", "name"))
    except ImportError as error:
        raise Misuse("subject", name, f"one that can be made here; {install_hint(error)}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise Misuse("subject", name, f"a factory that makes a subject (it raised {raised(error)})") from error
    if missing:
        raise Misuse("subject", name, f"a subject (the {type(subject).__name__} has no {', '.join(missing)})")
    if not isinstance(capabilities, AttentionCapabilities):
        kind = type(capabilities).__name__
        raise Misuse("subject", name, f"one that declares AttentionCapabilities, not a {kind}")
    if not isinstance(called, str):
        raise Misuse("subject", name, f"one whose name is a text, not a {type(called).__name__}")
    found: AttentionSubject = subject
    return found
