"""Attention on the CPU beside what others have for it; `python -m tests.benchmarks.cpu` measures and writes a page."""
