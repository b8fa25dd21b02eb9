"""Slurm as an engine: one gang is one batch job, and Slurm chooses its nodes."""
