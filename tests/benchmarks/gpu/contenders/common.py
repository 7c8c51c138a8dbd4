"""What every contender is: a name, why it cannot run here, and the calls that it makes of given inputs."""

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from tests.benchmarks.gpu.inputs import Inputs

Attend = Callable[[], Tensor]
"""One launch; (total_q, num_q_heads, head_dim), or that many elements in that order."""


class Unserved(Exception):
    """The contender has no kernel for this shape; the message says why."""


class Contender(Protocol):
    """One implementation beside ours."""

    @property
    def name(self) -> str: ...
    @property
    def until_tier(self) -> int:
        """The last tier of rows that it is timed on: those that compile for long have fewer."""
        ...

    def available(self, device: torch.device) -> str | None:
        """Why it cannot run here; None if it can."""
        ...

    def prepare(self, inputs: Inputs) -> Sequence[Attend]:
        """One call a copy of the inputs. What an engine does once a step, or less often, is done here and not timed.

        Raises `Unserved`, or whatever the contender raises for a shape that it does not take.
        """
        ...


def absent(device: torch.device, *modules: str) -> str | None:
    """Why it cannot run: the device is no GPU, or none of the modules can be imported."""
    if device.type != "cuda":
        return f"needs a GPU, not {device}"
    reasons = []
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # a package that is broken here is as good as none
            reasons.append(f"{module}: {type(error).__name__}: {error}".splitlines()[0])
        else:
            return None
    return "; ".join(reasons)


def first_of(*modules: str) -> Any:
    """The first module that can be imported. Raises what the last one raises."""
    for module in modules[:-1]:
        try:
            return importlib.import_module(module)
        except ImportError:
            continue
    return importlib.import_module(modules[-1])


def accepted(function: Callable[..., object], **arguments: object) -> dict[str, Any]:
    """Those of the arguments that this version of a function has.

    >>> accepted(lambda query, scale: None, scale=1.0, num_splits=2)
    {'scale': 1.0}
    """
    known = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in known}
