"""Subjects in a process of their own; see `pagedkv.conformance`."""
