"""Placeholder until the bound is there."""

from pagedkv.conformance.attention.bench import Law

BOUNDS: dict[str, Law] = {}
