"""Attention of other projects as subjects of `pagedkv.conformance.attention`, each in a module of its own.

`catalogue` has them by name, `python -m pagedkv.conformance.adapters.attention NAME` runs one and says which laws it
keeps and which it breaks, and `verdicts` says why. A module imports its project when a subject is made.
"""
