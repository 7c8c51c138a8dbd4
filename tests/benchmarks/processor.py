"""What a machine's processor is called, for the head of a page."""

import os
import platform
from pathlib import Path


def processor() -> str:
    """Its name, as the system tells it, how many cores there are, and of which kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return f"{model or platform.processor()}, {os.cpu_count()} cores, {platform.machine()}"
