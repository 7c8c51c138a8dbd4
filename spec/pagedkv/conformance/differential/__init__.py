"""Specification and subject side by side; see `pagedkv.conformance`."""
