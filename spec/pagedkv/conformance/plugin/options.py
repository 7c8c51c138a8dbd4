"""The options of the plugin, by themselves: `pytest` reads them in every session, so nothing of the kit is imported."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest


class Option(NamedTuple):
    """One option, `--pagedkv-<name>` and in the ini file `pagedkv_<name>`."""

    name: str
    metavar: str
    type: Callable[[str], object]
    help: str

    @property
    def field(self) -> str:
        """Its name in `suite.Options`."""
        return self.name.replace("-", "_")


OPTIONS: Final = (
    Option("known-failures", "FILE", Path, "TOML file of pinned traces and cases that must fail as stated"),
    Option("profile", "NAME", str, "how much: pr (the default) or nightly"),
    Option("programs", "N", int, "random programs, in place of the profile's"),
    Option("steps", "N", int, "operations in each program, in place of the profile's"),
    Option(
        "seed", "N", int, "draws programs and cases (default: --hypothesis-seed, the commit, or without git at random)"
    ),
    Option("traces", "PATH", Path, "a trace file, or a directory of them, that must hold"),
    Option("out", "DIR", Path, "where failing programs are written (default: failures)"),
    Option("limit-s", "SECONDS", float, "for an operation, or a check of a kernel, in a process of its own"),
)
"""Each is a field of `suite.Options`."""


KERNEL_SIZE: Final = Option(
    "kernel-size", "NAME", str, "launches of a kernel: full (the default), or tiny if interpreted"
)


def add(parser: pytest.Parser) -> None:
    """The options, on the command line and in the ini file."""
    group = parser.getgroup(
        "pagedkv", "pagedkv: hold block managers and kernels against PagedAttention's specification"
    )
    group.addoption(
        "--pagedkv-subject", action="append", metavar="NAME",
        help="a block manager: module:factory, process:module:factory, command:./program or a built-in name; may be"
        " repeated",
    )  # fmt: skip
    group.addoption(
        "--pagedkv-kernel", action="append", metavar="NAME",
        help="an attention kernel: module:factory or process:module:factory; may be repeated",
    )  # fmt: skip
    parser.addini("pagedkv_subject", "block managers, as with --pagedkv-subject", "linelist")
    parser.addini("pagedkv_kernel", "attention kernels, as with --pagedkv-kernel", "linelist")
    for option in (*OPTIONS, KERNEL_SIZE):
        group.addoption(f"--pagedkv-{option.name}", type=option.type, metavar=option.metavar, help=option.help)
        parser.addini(f"pagedkv_{option.field}", f"as --pagedkv-{option.name}", "string")


def subjects(config: pytest.Config) -> list[str]:
    """The names of block managers that were given."""
    return _names(config, "pagedkv_subject")


def kernels(config: pytest.Config) -> list[str]:
    """The names of kernels that were given."""
    return _names(config, "pagedkv_kernel")


def _names(config: pytest.Config, option: str) -> list[str]:
    named: list[str] = config.getoption(option) or config.getini(option)
    return list(dict.fromkeys(named))


def given(config: pytest.Config) -> Iterator[tuple[str, Any]]:
    """The `OPTIONS` that were given. Raises `UsageError` as of `value_of`."""
    for option in OPTIONS:
        value = value_of(config, option)
        if value is not None:
            yield option.field, value


def value_of(config: pytest.Config, option: Option) -> Any:
    """What was given on the command line, or else in the ini file, whose paths are relative to it; None: nothing.

    Raises `UsageError` for a text in the ini file that is not of its type.
    """
    value, text = config.getoption(f"pagedkv_{option.field}"), config.getini(f"pagedkv_{option.field}")
    if value is None and text:
        try:
            value = option.type(text)
        except ValueError as error:
            expected = f"expected {option.metavar}: {option.help}"
            raise pytest.UsageError(f"pagedkv_{option.field}={text!r} is not allowed: {expected}") from error
        if isinstance(value, Path) and config.inipath:
            value = config.inipath.parent / value
    return value
