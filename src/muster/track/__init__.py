"""The record of runs: captured environment, metrics, notes and artifacts of all attempts, and queries over them."""
