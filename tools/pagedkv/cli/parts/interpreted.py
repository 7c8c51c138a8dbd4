"""Part of `verify`: the Triton kernels without a GPU, interpreted on tiny shapes with operands upcast to float32."""

from pagedkv.cli.parts import Options
from pagedkv.cli.parts.attention_report import attention_section
from pagedkv.cli.report import Section
from pagedkv.optimized.attention_subject import InterpretedTritonAttention


def run(options: Options) -> Section:
    """Indexing, masks, poison and probes; what a device rounds is not seen here."""
    return attention_section(InterpretedTritonAttention(), "interpreted, upcast", "tiny", options)
