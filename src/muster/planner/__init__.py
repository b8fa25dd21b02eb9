"""`muster plan`: memory, time and cost of a training before it runs. Formulas over plain numbers; no torch, no server.

`shapes` and `setups` say what is trained, `catalogue` on what, `memory` and `speed` predict, `search` compares layouts.
`traced` alone imports torch, for a task of the user's own.
"""
