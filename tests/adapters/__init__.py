"""Block managers and kernels of other projects, held against the specification. `make adapters` runs all of them.

`campaigns` says which subjects there are and what was found out about each law that they break, `campaign` runs one and
writes its numbers to docs/conformance, and `page` makes docs/conformance.md of all of them. The tests run a little of
it, each where its project is installed.
"""
