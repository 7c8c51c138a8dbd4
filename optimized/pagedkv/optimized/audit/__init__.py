"""What can be said of a Triton kernel without a GPU: it is interpreted, its accesses recorded, and it is compiled."""
