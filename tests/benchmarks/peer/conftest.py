"""Doctests import every module, and vLLM exists only where `make bench-peer` has installed it."""

import warnings
from importlib import import_module
from importlib.util import find_spec

collect_ignore = [] if find_spec("vllm") else ["vllm_manager.py", "steady.py", "pools.py", "churn.py"]

if not collect_ignore:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what warns while vLLM is imported is not ours to mend
        import_module("vllm.v1.core.kv_cache_manager")
