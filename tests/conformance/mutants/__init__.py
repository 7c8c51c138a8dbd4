"""Every mutant of every family in one catalogue: how each is hunted, what killed it, and the traces that show it.

`python -m tests.conformance.mutants` (`make mutants`) finds each again, unaided, and writes docs/mutants.md.
"""
