"""Where and when, and with which versions."""

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

import torch

from pagedkv.optimized.attention.cutting import architecture_of
from pagedkv.optimized.audit.sources import kernel_source_hash

PACKAGES = ("torch", "triton", "flashinfer-python", "flash-attn", "flash-attn-3", "vllm")


def machine(device: torch.device) -> dict[str, str]:
    """What stands at the head of the page, in order."""
    installed = {name: found for name in PACKAGES if (found := _version(name)) is not None}
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "card": card(device),
        **_device(device),
        "Python": platform.python_version(),
        **installed,
        "kernel sources": kernel_source_hash(),
    }


def card(device: torch.device) -> str:
    """The name of the device as its driver gives it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"no card: {platform.machine()} processor"


def slug(name: str) -> str:
    """A file name for a card.

    >>> slug("NVIDIA H100 80GB HBM3")
    'nvidia-h100-80gb-hbm3'
    """
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


def _device(device: torch.device) -> dict[str, str]:
    if device.type != "cuda":
        return {}
    properties = torch.cuda.get_device_properties(device)
    return {
        "architecture": architecture_of(device),
        "multiprocessors": str(properties.multi_processor_count),
        "memory": f"{properties.total_memory / 2**30:.0f} GiB",
        "L2 cache": f"{properties.L2_cache_size / 2**20:.0f} MiB",
        "driver": driver(),
        "CUDA or ROCm": str(torch.version.cuda or torch.version.hip),
    }


def driver() -> str:
    """The driver's own version, where the system tells it."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as lines:
            words = lines.readline().split()
    except OSError:
        return "unknown"
    return next((word for word in words if word[0].isdigit() and "." in word), "unknown")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
