"""The conformance kit: hold any implementation, ours or a stranger's, against the specification.

* **Side by side**: `driver` runs one operation on specification and subject and compares everything, with `compare`
  for what is said and seen, `form` for its form, and `shadow` for what is written where, without tensors; `laws`
  lists what can be found broken. `model` is the specification as a subject, under every legal choice, and must always
  pass.
* **Programs**: `plans` draws a pool and what a program is about, `programs` its next operation, `undirected` what no
  engine would call; `choosing` is where chance comes from. `fuzz` runs them at speed, `machine` under Hypothesis, and
  `counting` and `measures` say what that has exercised.
* **Every state** of small pools: `exhaustive` visits the `slices`.
* **Failures**: `shrinking` makes a program short, `replay` runs a trace without chance, and `known` pins what is let
  be.
* **Ways in**: `subjects` finds one by its name; `suite` lists the checks of a subject, `plugin` runs them in pytest,
  and `profiles` says how much. `remote` has subjects in a process of their own, in any language, which speak the
  `protocol`; `serve` is the other side, in Python. `recorder` turns the calls of a live engine into a trace.
* **Beyond**: `attention` holds kernels, `adapters` are subjects around other projects, and `mutation` makes broken
  implementations, which must always fail.
"""
