"""The loops of the manager: plain Python over plain arrays, compiled by numba where it is installed.

One request, one block, one token at a time, in the order in which the specification speaks of them: compiled, a loop
takes nanoseconds where a call of NumPy takes a microsecond. Without numba the same functions run as they stand.

`memory` says what the arrays are; `blocks` is the life of a block, `paths` what full blocks hold, `rows` and `growth`
the life of a request; `calls` and `batches` are what the manager calls. Only whole numbers and arrays come here: ids,
namespaces, hashes and errors stay outside. Nothing checks an index: who calls has seen to it that rows are known, that
there are as many blocks and nodes as are taken, and that tables and tokens are wide enough.
"""
