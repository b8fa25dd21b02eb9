"""Fault injection for users: breaks a job of their own on purpose, and checks what must hold. A client of the API.

`scenarios` has what can be broken, `beside` is the program that breaks it on the node (with `beside_memory` and
`beside_network`), `read_files` damages data that a job reads, `drill` runs a job with a fault, `must_hold`, `measure`
and `weights` check it against an undisturbed run, `soak` injects faults at random.
"""
