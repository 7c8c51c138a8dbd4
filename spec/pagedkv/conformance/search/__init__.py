"""Ways to look for a program that breaks a law; see `pagedkv.conformance`."""
