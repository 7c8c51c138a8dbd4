"""Requests as a trace records them: when they came, how long their prompt was, how many tokens they were answered with.

The trace that ships is the beginning of a real one (see `data/NOTICE`). It has no text, so the tokens of a request
are a pseudo-random stream of its own, and no two requests share a prefix.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from pagedkv.spec.trace import Stream, Streamed, TraceError
from pagedkv.spec.words import Misuse, Token

COLUMNS: Final = "TIMESTAMP,ContextTokens,GeneratedTokens"
BUNDLED: Final = Path(__file__).parent / "data" / "azure_conv_2000.csv"


@dataclass(frozen=True)
class Arrival:
    """One request. `arrival_s`: seconds since the first one."""

    name: str
    arrival_s: float
    prompt_tokens: int
    output_tokens: int

    @property
    def final_length(self) -> int:
        """Positions whose KV is needed, at the most: the last token that is generated is never read again.

        >>> Arrival("a", 0.0, prompt_tokens=5, output_tokens=3).final_length
        7
        """
        return self.prompt_tokens + max(self.output_tokens - 1, 0)

    def prompt(self) -> tuple[Token, ...]:
        """The prompt, which a trace writes as a stream."""
        return Streamed((Stream(self.name, 0, self.prompt_tokens),))

    def generated(self) -> tuple[Token, ...]:
        """The tokens that will be appended, `final_length - prompt_tokens` of them."""
        return Streamed((Stream(self.name, self.prompt_tokens, self.final_length - self.prompt_tokens),))


def bundled(limit: int | None = None) -> list[Arrival]:
    """The first 2,000 requests of the Azure 2023 conversation trace, or the first `limit` of them.

    >>> [(a.arrival_s, a.prompt_tokens, a.output_tokens) for a in bundled(2)]
    [(0.0, 374, 44), (4.314579, 396, 109)]
    """
    return read_arrivals(BUNDLED, limit)


def read_arrivals(path: str | Path, limit: int | None = None) -> list[Arrival]:
    """The requests of a CSV file with the columns TIMESTAMP, ContextTokens, GeneratedTokens, in order of time.

    Raises `TraceError`, which names file and line, for a line that is none, and `Misuse` for `limit` < 1.
    """
    if limit is not None and limit < 1:
        raise Misuse("limit", limit, "an integer >= 1, or None")
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    if not lines or lines[0].strip() != COLUMNS:
        raise TraceError(str(path), 1, f"expected the header {COLUMNS}")
    arrivals: list[Arrival] = []
    start = previous = None
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip() or len(arrivals) == limit:
            continue
        try:
            time, prompt_tokens, output_tokens = _row(line)
        except ValueError as error:
            raise TraceError(str(path), number, str(error)) from error
        start = start or time
        if previous is not None and time < previous:
            raise TraceError(str(path), number, f"expected a time not before that of the line above, {previous}")
        previous = time
        name = f"r{len(arrivals)}"
        arrivals.append(Arrival(name, (time - start).total_seconds(), prompt_tokens, output_tokens))
    if not arrivals:
        raise TraceError(str(path), 2, "expected at least one request")
    return arrivals


def _row(line: str) -> tuple[datetime, int, int]:
    fields = line.split(",")
    if len(fields) != 3:
        raise ValueError(f"expected three fields, {COLUMNS}, found {len(fields)}")
    try:
        time = datetime.fromisoformat(fields[0][:26])  # the trace has seven decimals, a datetime has six
    except ValueError as error:
        raise ValueError(f"expected a time like 2023-11-16 18:15:46.6805900, found {fields[0]!r}") from error
    return time, _count("ContextTokens", fields[1], 1), _count("GeneratedTokens", fields[2], 0)


def _count(column: str, text: str, least: int) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise ValueError(f"expected {column} to be an integer >= {least}, found {text!r}")
    return int(text)
