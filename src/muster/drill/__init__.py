"""Fault injection for users: breaks a job of their own on purpose, and checks what must hold. A client of the API.

`scenarios` has what can be broken, `beside` is the program that breaks it on the node, `drill` runs a job with a fault,
`measure` and `weights` compare it with an undisturbed run, `soak` injects faults at random.
"""
