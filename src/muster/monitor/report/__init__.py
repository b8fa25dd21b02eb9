"""The report of a month: figures against their targets, how they changed, and what was wasted. Pure functions."""
