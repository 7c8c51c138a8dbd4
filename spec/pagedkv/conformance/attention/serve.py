"""A kernel that is held to laws here, and answers on stdout what it is asked on stdin; `apart` asks.

    python -m pagedkv.conformance.attention.serve [--no-fork] MODULE:FACTORY

As with block managers (`process.serve`) the interpreter imports the module once and then forks: a child makes the
subject and holds it to laws, and if it dies, the parent says so and forks another one. With `--no-fork`, or where an
import has loaded the driver of a GPU, it is held in the interpreter itself.
"""

import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import fields
from functools import cached_property

from pagedkv.conformance.attention.cases import case_of
from pagedkv.conformance.attention.held import Here
from pagedkv.conformance.attention.subjects import factory_of, made_by
from pagedkv.conformance.differential.violation import raised
from pagedkv.conformance.process.protocol import Json, read, write
from pagedkv.conformance.process.serve import Answering, run
from pagedkv.spec.attention_subject import AttentionCapabilities
from pagedkv.spec.misuse import Misuse, shown


class Server:
    """Answers line by line. The subject is made when it is first asked for."""

    def __init__(self, name: str, factory: Callable[[], object] | Misuse) -> None:
        self.name, self.factory = name, factory

    @cached_property
    def held(self) -> Here:
        """The subject. Raises `Misuse` if there is none."""
        if isinstance(self.factory, Misuse):
            raise self.factory
        return Here(made_by(self.name, self.factory))

    def answer(self, line: bytes) -> bytes:
        """The line that answers a line, and has its number."""
        question = read(line)
        number = question.pop("number")
        try:
            told: Json = getattr(self, f"answer_{question.pop('ask')}")(**question)
            return write({**told, "number": number})
        except Misuse as misuse:
            value = misuse.value if isinstance(misuse.value, str | int | None) else shown(misuse.value)
            told = {"misuse": [misuse.argument, value, misuse.allowed]}
        except Exception as error:  # of what it has beside `fit`, `rounding` and launches, such as a property
            told = {"raised": raised(error)}
        return write({**told, "number": number})

    def answer_hello(self) -> Json:
        """What it is."""
        declared = self.held.capabilities
        capabilities = {each.name: getattr(declared, each.name) for each in fields(AttentionCapabilities)}
        shapes = [dict(shape) for shape in self.held.shapes]
        fits = hasattr(self.held.subject, "fit")
        return {"name": self.held.name, "capabilities": capabilities, "shapes": shapes, "fits": fits}

    def answer_fit(self, case: str) -> Json:
        """The part of a case that it takes."""
        part = self.held.fit(case_of(case))
        return {"case": part and part.describe()}

    def answer_tile(self, case: str) -> Json:
        """Of its rounding."""
        return {"tile": self.held.tile(case_of(case))}

    def answer_begin(self) -> Json:
        """A configuration begins."""
        self.held.begin()
        return {}

    def answer_judge(self, law: str, case: str, fresh: bool) -> Json:
        """One law on one case, and what has been measured since the configuration began."""
        judged = self.held.judge(law, case_of(case), fresh=fresh)
        error = judged.error and "".join(traceback.format_exception(judged.error))
        launches, rhos, visibility = self.held.measured
        texts = {shape: str(rho) for shape, rho in rhos.items()}  # not every float is one of JSON
        return {**judged._asdict(), "error": error, "measured": [launches, texts, visibility]}

    def answer_end(self) -> Json:
        """No answer: it ends, with whatever a fault has left of it."""
        os._exit(0)


def load(name: str) -> Callable[[], Answering]:
    """Import what makes the subject, and say how one begins to answer."""
    try:
        factory: Callable[[], object] | Misuse = factory_of(name)
    except Misuse as misuse:
        factory = misuse
    return lambda: Server(name, factory).answer


if __name__ == "__main__":
    run(load, "pagedkv.conformance.attention.serve [--no-fork] MODULE:FACTORY", sys.argv[1:])
