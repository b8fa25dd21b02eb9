"""Entities, jobs, events, specs and rules, and `apply`, the only way to change the state. No I/O, no clock."""
