"""Looks for secrets in text, and for what could act when an artifact is loaded; nothing is ever loaded or run."""
