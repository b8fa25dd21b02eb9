"""Engines: the adapters to the systems that run the workers."""
