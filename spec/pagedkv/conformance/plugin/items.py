"""What the plugin does when there is a subject, a block manager or a kernel: its checks become items of the session.

Items stand beside those of the user's own tests, so `-k`, `-x`, `--lf`, `-n` (pytest-xdist) and all reports treat
them alike. Their ids, `pagedkv[mine:MyAllocator]::programs` or `pagedkv[mine:MyDecode]::float32 plain`, can be given as
arguments to run them again.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from pagedkv.conformance.attention.suite import checks as checks_of_kernel
from pagedkv.conformance.attention.suite import kernel_run
from pagedkv.conformance.counted import counted
from pagedkv.conformance.plugin import options
from pagedkv.conformance.suite import Broken, Check, NotApplicable, Options, checks, run_of
from pagedkv.conformance.suite.profiles import seed_of_commit
from pagedkv.conformance.told import properties
from pagedkv.spec import Misuse
from pagedkv.spec.trace import TraceError

ID: Final = "pagedkv["


class Subject(pytest.Collector):
    """A subject; its items are its checks."""

    checks: list[Check]

    def collect(self) -> Iterator["Item"]:
        """The checks that its capabilities allow."""
        for check in self.checks:
            item = Item.from_parent(self, name=check.name)
            item.check = check
            yield item


class Item(pytest.Item):
    """One check."""

    check: Check

    def runtest(self) -> None:
        """Run it; what it did goes into the report."""
        self.user_properties += properties(self.check.of, {})
        try:
            self.user_properties += properties(None, self.check.run())
        except NotApplicable as why:
            pytest.skip(str(why))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Of a broken law the report alone: no traceback leads to its cause, and the trace does."""
        return str(excinfo.value) if isinstance(excinfo.value, Broken) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Where it is, for reports: in no file."""
        return self.path, None, self.nodeid


class Conformance:
    """The plugin of one session."""

    def __init__(self, config: pytest.Config) -> None:
        worker: dict[str, Any] = getattr(config, "workerinput", {})
        ids = {
            arg: arg[arg.index(ID) :]
            for arg in config.args
            if arg.removeprefix("../" * arg.count("../")).startswith(ID)
        }
        self.only: list[str] = worker.get("pagedkv_only") or [*ids.values()]
        """The ids that were asked for; none: all."""
        config.args = [] if worker.get("pagedkv_alone") else [arg for arg in config.args if arg not in ids]
        self.alone = bool(self.only) and not config.args
        sys.path.append(str(config.invocation_params.dir))  # as with the command, subjects are found from here, too
        try:
            chosen = Options(**dict(options.given(config)))
            seed = worker.get("pagedkv_seed", chosen.seed)
            self.seed: int = _seed(config) if seed is None else seed
            chosen = replace(chosen, seed=self.seed)
            managers, kernels = options.subjects(config), options.kernels(config)
            limits = _limits([*managers, *kernels], chosen.limit_s)
            self.runs = [run_of(name, replace(chosen, limit_s=limits[name])) for name in managers]
            size: Any = options.value_of(config, options.KERNEL_SIZE) or "full"
            self.kernels = [
                kernel_run(name, seed=self.seed, size=size, known_failures=chosen.known_failures, limit_s=limits[name])
                for name in kernels
            ]
        except (Misuse, TraceError) as error:
            raise pytest.UsageError(f"pagedkv: {error}") from error

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """What the workers of pytest-xdist have to agree on. What is held there needs no process here."""
        self.pytest_sessionfinish()
        node.workerinput |= {"pagedkv_seed": self.seed, "pagedkv_only": self.only, "pagedkv_alone": self.alone}

    def pytest_sessionfinish(self) -> None:
        """Kernels in processes of their own may hold a GPU."""
        for kernel in self.kernels:
            kernel.subject.end()

    def pytest_report_header(self) -> list[str]:
        """How to repeat this run."""
        lines = []
        if self.runs:
            budget = self.runs[0].budget
            ran = f"{counted(budget.programs, 'programs')} of {counted(budget.steps, 'operations')}"
            lines.append(f"{', '.join(run.name for run in self.runs)}: {ran}")
        if self.kernels:
            lines.append(f"{', '.join(run.name for run in self.kernels)}: --pagedkv-kernel-size={self.kernels[0].size}")
        return [f"pagedkv: {line}, --pagedkv-seed={self.seed}" for line in lines]

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Add the items, before any selection."""
        ours: list[pytest.Item] = []
        held = [(run.name, checks(run)) for run in self.runs]
        held += [(kernel.name, checks_of_kernel(kernel)) for kernel in self.kernels]
        for of, found in held:
            name = f"{ID}{of}]"
            node = Subject.from_parent(session, name=name, nodeid=name)
            node.checks = found
            ours += session.genitems(node)
        asked = [item for item in ours if item.nodeid in self.only or item.nodeid.partition("::")[0] in self.only]
        if unknown := [name for name in self.only if not any(item.nodeid.startswith(name) for item in asked)]:
            raise pytest.UsageError(f"pagedkv: no item {unknown[0]}; there are: " + ", ".join(i.nodeid for i in ours))
        items += asked if self.only else ours


def _limits(names: list[str], limit_s: float | None) -> dict[str, float | None]:
    """The limit of each subject. It is for those in a process of their own; if there is none, all are given it, and
    say that they have none."""
    apart = [name for name in names if name.startswith(("process:", "command:"))]
    return {name: limit_s if name in apart or not apart else None for name in names}


def _seed(config: pytest.Config) -> int:
    """Of Hypothesis if it was given one, or else from the commit."""
    given = str(config.getoption("--hypothesis-seed", default=""))
    return int(given) if given.isdigit() else seed_of_commit(config.rootpath)
