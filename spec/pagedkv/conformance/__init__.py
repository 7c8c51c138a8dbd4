"""The conformance kit: hold any implementation, ours or a stranger's, against the specification.

In the order of reading:

* `differential`: specification and subject side by side. `driver` runs one operation on both and compares everything,
  with `compare` for what is said and seen, `form` for its form, `shadow` for what is written where, without tensors,
  and `in_time` for what never answers; a broken law is a `violation`, and `laws` lists all that there are. `model` is
  the specification as a subject, under every legal choice, and must always pass.
* `programs`: what to run. `plans` draws a pool and what a program is about, `generator` its next operation,
  `undirected` what no engine would call; `choosing` is where chance comes from, `counting` says what was exercised.
* `search`: `fuzz` runs programs at speed, `machine` under Hypothesis; `exhaustive` visits every state of the small
  pools of `slices`, and `measures` says how many of these states random programs reach.
* `failures`: `shrinking` makes a failing program short by the `steps` there are, `replay` runs a trace without chance,
  and `known` pins what is not to be repaired now. `corpus` has traces that broke real block managers.
* `suite`: the checks of a subject, in code; `plugin`: the same in pytest. `counted` is how both say numbers, `told`
  what they tell of a check.
* `subjects` finds a subject by its name, which may need `importing`. Those of `process` run in a process of their own,
  in any language, and speak the `protocol`; `serve` is the other side, in Python. `recorder` turns the calls of a live
  engine into a trace.
* `attention` holds kernels, with a `suite` and `pins` of its own; `adapters` are subjects around other projects.
"""
