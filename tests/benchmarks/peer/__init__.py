"""Our block manager and that of vLLM do the same work, in one process and in turn. `make bench-peer` runs it."""
