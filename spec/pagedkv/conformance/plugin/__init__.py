"""The pytest plugin: `pytest --pagedkv-subject=mine:MyAllocator` runs the checks of `suite` beside your tests.

It is registered when the package is installed, and without a subject it does nothing: the options are all that there is
of it, and nothing of the kit is imported. Every option can stand in the ini file, too, as `pagedkv_subject` and so on
(paths are relative to that file); the command line goes first.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest


class Option(NamedTuple):
    """One option, `--pagedkv-<name>` and in the ini file `pagedkv_<name>`."""

    name: str
    metavar: str
    type: Callable[[str], object]
    help: str


OPTIONS: Final = (
    Option("known-failures", "FILE", Path, "TOML file of pinned traces that must fail as stated"),
    Option("profile", "NAME", str, "how much: pr (the default) or nightly"),
    Option("programs", "N", int, "random programs, in place of the profile's"),
    Option("steps", "N", int, "operations in each program, in place of the profile's"),
    Option("seed", "N", int, "draws the programs (default: --hypothesis-seed, or else from the commit)"),
    Option("traces", "PATH", Path, "a trace file, or a directory of them, that must hold"),
    Option("out", "DIR", Path, "where failing programs are written (default: failures)"),
    Option("limit-s", "SECONDS", float, "for an operation of a subject in a process of its own"),
)
"""Each is a field of `suite_run.Options`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, on the command line and in the ini file."""
    group = parser.getgroup("pagedkv", "pagedkv: hold block managers against the specification of PagedAttention")
    group.addoption(
        "--pagedkv-subject", action="append", metavar="NAME",
        help="a subject: module:factory, process:module:factory, command:./program or a built-in name; may be repeated",
    )  # fmt: skip
    parser.addini("pagedkv_subject", "subjects, as with --pagedkv-subject", "linelist")
    for option in OPTIONS:
        group.addoption(f"--pagedkv-{option.name}", type=option.type, metavar=option.metavar, help=option.help)
        parser.addini(f"pagedkv_{option.name.replace('-', '_')}", f"as --pagedkv-{option.name}", "string")


def pytest_configure(config: pytest.Config) -> None:
    """With a subject, and only then, all the rest is loaded. What cannot be run is a usage error at once."""
    if config.getoption("pagedkv_subject") or config.getini("pagedkv_subject"):
        from pagedkv.conformance.plugin.items import Conformance  # noqa: PLC0415  # costs nothing unless it is wanted

        config.pluginmanager.register(Conformance(config, OPTIONS), "pagedkv-conformance")
