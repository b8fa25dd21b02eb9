"""The record of every run: what was captured, measured, noted and made, over all of its attempts, and how to ask it."""
