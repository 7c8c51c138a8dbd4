"""Programs of operations, drawn one by one; see `pagedkv.conformance`."""
