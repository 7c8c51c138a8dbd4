"""The conformance kit: hold any implementation, ours or a stranger's, against the specification.

`driver` runs specification and subject side by side and compares everything after every operation; `shadow` follows
what is written where, without tensors. Three ways to produce programs: `machine` (Hypothesis, which shrinks),
`fuzz` (the same programs at speed) and `exhaustive` (every state of small pools, in `slices`). `replay` runs a trace
without any of them. `model` is the specification as a subject, under every legal choice, and `mutation` makes broken
implementations: the first must always pass, the second must always fail. `attention` holds kernels.
"""
