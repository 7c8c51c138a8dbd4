"""What a command or a file names: a subject of attention as `module:factory`, a case as a report prints it."""

import ast
from collections.abc import Callable
from typing import Any, Final

from pagedkv.conformance.attention.cases import Case
from pagedkv.conformance.attention.held import Held
from pagedkv.conformance.differential.violation import raised
from pagedkv.conformance.subjects import install_hint
from pagedkv.conformance.subjects import subject as factory_named
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
    kind, _, rest = name.partition(":")
    if kind != "process":
        if limit_s is not None:
            raise Misuse("limit_s", limit_s, f"a subject in a process of its own, which {name} is not: process:{name}")
        return made_by(name, factory_of(name))
    try:
        from pagedkv.conformance.attention.apart import Apart  # noqa: PLC0415  # needs a POSIX system
    except ImportError as error:
        raise Misuse("subject", name, f"a POSIX system for a process of its own ({error})") from error
    return Apart(rest, limit_s=limit_s)


def factory_of(name: str) -> Callable[[], object]:
    """What `module:factory` names. `Misuse` as above."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute) or module in ("process", "command"):
        raise Misuse("subject", name, FORMS)
    factory: Any = factory_named(name)
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


def case_of(text: str) -> Case:
    """The case that a report prints: literals only, nothing else is evaluated. `Misuse` if it is none.

    >>> case_of("Case(lengths=(9,), window=3)").window
    3
    """
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "Case" or call.args:
            raise ValueError("no Case(...)")
        return Case(**{str(word.arg): ast.literal_eval(word.value) for word in call.keywords})
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise Misuse("case", text, f"Case(name=value, ...) as a report prints it ({error})") from error
