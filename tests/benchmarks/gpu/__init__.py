"""Attention timed on a GPU beside other kernels: `python -m tests.benchmarks.gpu`, the second half of `make gpu`.

All of it but the card is tested on the CPU, by `tests/benchmarks/test_gpu_lane.py`.
"""
