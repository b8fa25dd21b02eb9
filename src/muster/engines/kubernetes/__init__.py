"""Kubernetes as an engine: renders, applies and watches its objects."""
