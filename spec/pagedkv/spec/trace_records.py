"""Traces, the records: what a trace is once it is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from pagedkv.spec.expectation import Expect
from pagedkv.spec.operations import Operation
from pagedkv.spec.attention_subject import AttentionCapabilities
from pagedkv.spec.subject import Capabilities
from pagedkv.spec.words import Config

OPTIONS: Final = tuple(f.name for f in fields(Config) if f.name not in ("num_blocks", "block_size"))
"""What the header's "options" may set: the other fields of `Config`."""
CAPABILITIES: Final = tuple(
    f.name for f in (*fields(Capabilities), *fields(AttentionCapabilities)) if isinstance(f.default, bool)
)
"""What the header's "requires" may list."""
POLICIES: Final = ("lru",)
"""What "expect_policy" may name."""

ANYTHING: Final = Expect()


@dataclass(frozen=True)
class Attention:
    """What the operation `attend` computes: shapes, dtype and masks; tensor contents follow from seed and tokens."""

    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: str = "float32"
    causal: bool = True
    window: int | None = None
    """Positions that a row sees, itself included; None: all."""
    softcap: float = 0.0
    alibi: bool = False
    sinks: bool = False


@dataclass(frozen=True)
class Header:
    """The first line: the pool that the program runs on."""

    num_blocks: int
    block_size: int
    seed: int = 0
    """Of the tensor contents."""
    options: Mapping[str, Any] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    note: str = ""
    attention: Attention | None = None

    def config(self) -> Config:
        """The pool's configuration.

        >>> Header(8, 4, options={"swap_blocks": 2}).config().swap_blocks
        2
        """
        return Config(self.num_blocks, self.block_size, **self.options)

    @classmethod
    def of(cls, config: Config, **rest: Any) -> "Header":
        """A header for this configuration, with the options that are not the default; `rest` are other fields.

        >>> Header.of(Config(8, 4, swap_blocks=2)).options
        {'swap_blocks': 2}
        """
        plain = Config(config.num_blocks, config.block_size)
        options = {name: getattr(config, name) for name in OPTIONS if getattr(config, name) != getattr(plain, name)}
        return cls(config.num_blocks, config.block_size, options=options, **rest)


@dataclass(frozen=True)
class Line:
    """One operation and what is to be observed after it."""

    op: Operation
    expect: Expect = ANYTHING
    expect_policy: Mapping[str, Expect] = field(default_factory=dict)
    """By policy: only for subjects that declare it."""
    t: float | None = None
    """Seconds since the program's beginning."""
    number: int = field(default=0, compare=False)
    """The line of the file that it came from, from 1; 0: none."""


@dataclass(frozen=True)
class Trace:
    """A program: a pool and the operations on it, in order."""

    header: Header
    lines: tuple[Line, ...]
