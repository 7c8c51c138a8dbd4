"""The pytest plugin: `pytest --pagedkv-subject=mine:MyAllocator` runs the checks of `suite` beside your tests, and
`--pagedkv-kernel=mine:MyDecode` those of `attention.suite`.

It is registered when the package is installed, and without either it does nothing: there are its options, and a
summary of what has something to sum up, and nothing else of the kit is imported. Every option can stand in the ini
file, too, as `pagedkv_subject` and so on (paths are relative to that file); the command line goes first.
"""

import pytest

from pagedkv.conformance.plugin import options, summary


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, on the command line and in the ini file."""
    options.add(parser)


def pytest_configure(config: pytest.Config) -> None:
    """With a subject or a kernel, and only then, all the rest is loaded. What cannot be run is a usage error."""
    if options.subjects(config) or options.kernels(config):
        from pagedkv.conformance.plugin.items import Conformance  # noqa: PLC0415  # costs nothing unless it is wanted

        config.pluginmanager.register(Conformance(config), "pagedkv-conformance")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was held, by items of ours and by classes; with pytest-xdist only here all reports come together."""
    summary.write(terminalreporter)
