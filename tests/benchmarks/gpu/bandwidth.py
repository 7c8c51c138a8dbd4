"""The ceiling of what moves bytes: a large copy on the device, in the same run as all that is compared with it."""

import torch

from tests.benchmarks.gpu.timing import Timer

LARGEST_BYTES = 4 * 2**30


def copy_bandwidth(device: torch.device, timer: Timer, buffer_bytes: int | None = None) -> float:
    """Bytes read and bytes written a second, by torch's own copy between two buffers much larger than any cache."""
    size = buffer_bytes or min(LARGEST_BYTES, free_bytes(device) // 4)
    source = torch.randint(2**31 - 1, (max(1, size // 4),), dtype=torch.int32, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / timer.time([lambda: target.copy_(source)]).seconds


def free_bytes(device: torch.device) -> int:
    """What can still be had; the CPU is only ever asked for little."""
    if device.type != "cuda":
        return 2**28
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0]


def l2_bytes(device: torch.device) -> int:
    """The last cache before memory; 0 where none is known."""
    return torch.cuda.get_device_properties(device).L2_cache_size if device.type == "cuda" else 0
