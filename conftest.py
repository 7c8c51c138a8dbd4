"""Tests everywhere: the code blocks of README and docs are run, and Hypothesis has explicit profiles.

Hypothesis picks a profile "ci" by itself where it believes to be in continuous integration, and that one draws the
same examples for ever. So ours is chosen by name: `pr`, or with `--hypothesis-profile=nightly` more of the same. The
seed comes from the Makefile.
"""

from importlib.util import find_spec

from hypothesis import HealthCheck, settings
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

settings.register_profile(
    "pr",
    parent=settings.get_profile("default"),
    derandomize=False,
    deadline=None,  # a machine under load is no failure …
    suppress_health_check=[HealthCheck.too_slow],  # … nor is its slowness
    print_blob=True,
)
settings.register_profile("nightly", parent=settings.get_profile("pr"), max_examples=2_000)
settings.load_profile("pr")

if find_spec("torch"):
    import torch

    torch.set_num_threads(1)  # the shapes are tiny; threads that wait for each other cost more than they save

pytest_collect_file = Sybil(parsers=[PythonCodeBlockParser(), SkipParser()], patterns=["*.md"]).pytest()

# Doctests import every module, and Triton exists for Linux only.
collect_ignore_glob = [] if find_spec("triton") else ["optimized/pagedkv/optimized/kernels/*"]
