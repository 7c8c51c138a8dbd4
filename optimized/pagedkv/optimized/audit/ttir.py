"""Triton's own intermediate representation of a kernel, as values that know what they are computed from.

It is the text of `compiled.asm["ttir"]`, after inlining: one operation a line, in SSA form. Only as much of it is
understood as the questions in `address_check` need: operands, element types, loops and branches, and source lines.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from pagedkv.optimized.audit.machine_code import Place

NAME: Final = re.compile(r"%[\w$.-]+(?:#\d+)?")
DEFINED: Final = re.compile(r"^((?:%[\w$.-]+(?::\d+)?(?:, )?)+) = ")
OPERATION: Final = re.compile(r'"?([a-z_]+\.[\w.]+)"?')
LOOPS: Final = {"scf.for", "scf.while"}


@dataclass(eq=False)
class Value:
    """The result of an operation, or the operation itself if it has none; an argument; a variable of a loop."""

    operation: str
    """Its name in TTIR; "argument" of the kernel, "counter" or "carried" of a loop, "passed" to a block."""
    sources: list["Value"] = field(default_factory=list)
    type: str = ""
    place: Place | None = None
    loops: tuple[int, ...] = ()
    """The loops around it, from the outside."""
    name: str = ""
    """Of an argument."""

    @property
    def bits(self) -> int | None:
        """The width of an integer, or of the elements of a tensor of them; None for another type."""
        match = re.fullmatch(r"(?:tensor<[\dx]+x)?i(\d+)>?", self.type)
        return int(match[1]) if match else None


def parse(text: str) -> list[Value]:
    """All values of the kernel in the text, in order. Raises `ValueError` where the text is not understood."""
    return _Parser(text).values


class _Region(NamedTuple):
    """An open brace."""

    kind: str
    carried: Sequence[Value]
    """What a yield in it is added to."""
    outer: dict[str, Value]
    """The names before it: those inside are not seen outside, and may be used again beside it."""
    after: Sequence[Value] = ()
    """Of a `while`: what the block after the condition starts with."""


class _Parser:
    def __init__(self, text: str) -> None:
        self.values: list[Value] = []
        self.names: dict[str, Value] = {}
        self.regions: list[_Region] = []
        self.loops: tuple[int, ...] = ()
        self.passed: dict[str, list[Value]] = {}
        self.places = _places(text)
        for line in map(str.strip, text.splitlines()):
            if line.startswith("tt.func"):
                self.function(line)
            elif line.startswith("}"):
                self.close(line)
            elif line.startswith("^"):
                self.block(line)
            elif line and not line.startswith(("#", "module", "//")):
                self.line(line)
        if self.regions:
            raise ValueError(f"TTIR not understood: {len(self.regions)} regions stay open")

    def function(self, line: str) -> None:
        self.regions.append(_Region("tt.func", (), dict(self.names)))
        for name, kind in re.findall(r"(%[\w$.-]+): (!?[\w.]+(?:<[^>]*>+)?)", line.partition(") attributes")[0]):
            self.names[name] = self.made("argument", [], kind, None, name.removeprefix("%"))

    def line(self, line: str) -> None:
        body, _, trailing = line.partition(" loc(")
        defined = DEFINED.match(body)
        body = body[defined.end() :] if defined else body
        operation = OPERATION.match(body)
        if operation is None:
            raise ValueError(f"TTIR not understood: {line}")
        kind, place = operation[1], self.places.get(trailing.rstrip(")"))
        results = re.findall(r"(%[\w$.-]+)(?::(\d+))?", defined[1]) if defined else []
        opened = body.endswith("{")
        if opened and kind in LOOPS:
            self.loop(kind, body, results, place)
            return
        operands = [self.at(name) for name in NAME.findall(body)]
        if kind in ("scf.yield", "scf.condition"):
            self.leave(kind, operands)
        elif kind.startswith("cf."):
            self.jump(body)
        if kind == "scf.if":
            made = [self.made("carried", [], "", place) for _, count in results for _ in range(int(count or 1))]
            self.define(results, made)
            self.regions.append(_Region(kind, made, dict(self.names)))
            return
        value = self.made(kind, operands, body.rpartition(" : ")[2] if " : " in body else "", place)
        self.define(results, [value] * sum(int(count or 1) for _, count in results))
        if opened:
            self.regions.append(_Region(kind, (), dict(self.names)))

    def loop(self, kind: str, body: str, results: list[tuple[str, str]], place: Place | None) -> None:
        """Its variables come from where it starts and from what each turn yields; its results, too."""
        first, _, rest = body.partition(" iter_args") if kind == "scf.for" else ("", "", body)
        inits = re.findall(r"(%[\w$.-]+) = (%[\w$.-]+(?:#\d+)?)", rest)
        outside, outer_loops = dict(self.names), self.loops
        starts = [self.at(init) for _, init in inits]
        bounds = [self.at(name) for name in NAME.findall(first)[1:]] if first else []
        made = [self.made("carried", [start], "", place) for start in starts]
        counts = sum(int(count or 1) for _, count in results)
        after = [self.made("carried", [], "", place) for _ in range(counts)] if kind == "scf.while" else made
        self.define(results, after)
        outside = dict(self.names)
        self.loops = (*outer_loops, len(self.values))
        if bounds:
            counter = NAME.findall(first)[0]
            self.names[counter] = self.made("counter", bounds, "", place)
        self.names.update(zip((name for name, _ in inits), made, strict=True))
        self.regions.append(_Region(kind, made, outside, after))

    def leave(self, kind: str, operands: list[Value]) -> None:
        region = self.regions[-1]
        into, given = (region.after, operands[1:]) if kind == "scf.condition" else (region.carried, operands)
        if region.kind in (*LOOPS, "scf.if"):
            for value, source in zip(into, given, strict=True):
                value.sources.append(source)

    def close(self, line: str) -> None:
        if not self.regions:  # of the module
            return
        region = self.regions.pop()
        self.names = dict(region.outer)
        if line.startswith("} else"):
            self.regions.append(region)
        elif line.startswith("} do"):
            self.regions.append(region._replace(kind="scf.while"))
            self.passed[""] = list(region.after)
        elif region.kind in LOOPS:
            self.loops = self.loops[:-1]

    def block(self, line: str) -> None:
        """A label, and what is passed to it: from a branch, or from the condition of a `while`."""
        label, arguments = line.partition("(")[0].rstrip(":"), re.findall(r"(%[\w$.-]+): ", line)
        after = self.passed.pop("", None)
        for i, name in enumerate(arguments):
            self.names[name] = self.made("passed", [after[i]] if after else [], "", None)
            if not after:
                self.names[name].sources = self.passed.setdefault(f"{label} {i}", [])

    def jump(self, body: str) -> None:
        for label, given in re.findall(r"(\^\w+)(?:\(([^:)]*))?", body):
            for i, name in enumerate(NAME.findall(given)):
                self.passed.setdefault(f"{label} {i}", []).append(self.at(name))

    def made(
        self, operation: str, sources: list[Value], kind: str = "", place: Place | None = None, name: str = ""
    ) -> Value:
        value = Value(operation, sources, kind.strip(), place, self.loops, name)
        self.values.append(value)
        return value

    def define(self, results: list[tuple[str, str]], values: Sequence[Value]) -> None:
        names = (f"{name}#{i}" if count else name for name, count in results for i in range(int(count or 1)))
        self.names.update(zip(names, values, strict=True))

    def at(self, name: str) -> Value:
        """Raises `ValueError` for a name that is not known, as the text is then not understood."""
        if name not in self.names:
            raise ValueError(f"TTIR not understood: {name} is used and not defined")
        return self.names[name]


def upstream(value: Value, through: Sequence[str] | None = None) -> Iterator[Value]:
    """The value and what it is computed from; if `through` is given, only these operations are followed further."""
    seen, waiting = set[int](), [value]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if through is None or each.operation in through:
            waiting += each.sources


def _places(text: str) -> dict[str, Place]:
    """For each `#loc` the line of source that it names: of an inlined function its own, not the caller's."""
    told = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", text, re.MULTILINE))

    def place(location: str, depth: int = 0) -> Place | None:
        line = re.match(r'"([^"]*)":(\d+):\d+', location)
        if line:
            return Path(line[1]).name, int(line[2])
        found = (place(told[name], depth + 1) for name in re.findall(r"#loc\d*", location) if name in told)
        return next((each for each in found if each), None) if depth < 50 else None

    return {name: found for name in told if (found := place(told[name]))}
