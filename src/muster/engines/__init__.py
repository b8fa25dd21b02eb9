"""Adapters to what runs the workers."""
