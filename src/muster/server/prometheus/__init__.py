"""The page `/metrics`, for Prometheus: read from the state and from plain counts when it is asked for."""
