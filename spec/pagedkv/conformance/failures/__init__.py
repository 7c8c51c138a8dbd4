"""Programs that break a law: made short, replayed, pinned; see `pagedkv.conformance`."""
