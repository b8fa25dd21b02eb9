"""Signed statements of what model versions and stored checkpoints were built from."""
