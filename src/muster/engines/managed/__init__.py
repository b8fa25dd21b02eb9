"""Managed training services: renders a job as the service's request, and does not send it."""
