"""Kubernetes as an engine: its objects rendered, applied and watched."""
