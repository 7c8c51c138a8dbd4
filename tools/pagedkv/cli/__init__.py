"""The `pagedkv` command: data on stdout, progress on stderr, exit codes 0 (holds), 1 (a violation), 2 (misuse).

One file a verb (`verify`, `replay`, `explain`, `fuzz`, `exhaust`); `inputs` reads what the user names, `report` and
`drawing` write what the user reads, `tasks` are the parts of `verify`.
"""
