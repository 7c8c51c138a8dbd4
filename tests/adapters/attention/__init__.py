"""Kernels of other projects: what the adapters say of them is what the pages say."""
