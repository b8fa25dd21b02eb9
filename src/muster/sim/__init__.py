"""Cluster history, real or imagined, through the real controller on a clock of its own."""
