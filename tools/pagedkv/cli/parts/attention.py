"""Part of `verify`: attention by the backend of the device, on the CPU and on a GPU if there is one."""

from typing import Literal

import torch

from pagedkv.cli.parts import Options
from pagedkv.cli.parts.attention_report import attention_section
from pagedkv.cli.report import Section, merged
from pagedkv.optimized.attention.backends import backend_name
from pagedkv.optimized.attention.subject import OptimizedAttention
from pagedkv.optimized.cpu.support import described


def run(options: Options) -> Section:
    """The backend of the CPU, the simple one that takes its place where that is not installed, and that of a GPU."""
    torch.set_num_threads(1)  # another part runs beside this one
    size: Literal["tiny", "full"] = "tiny" if options.quick else "full"
    compiled = backend_name(torch.device("cpu")) != "torch"
    how = f"on the CPU, {described()}" if compiled else "on the CPU"
    parts = [attention_section(OptimizedAttention("cpu"), how, size, options)]
    if compiled:
        parts.append(attention_section(OptimizedAttention("cpu", "torch"), "on the CPU", "tiny", options))
    if torch.cuda.is_available():
        parts.append(attention_section(OptimizedAttention("cuda"), "on a GPU", size, options))
    else:
        parts.append(Section("attention", "holds", ("on a GPU: not run, there is none on this machine",)))
    return merged("attention", parts)
