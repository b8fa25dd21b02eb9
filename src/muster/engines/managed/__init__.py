"""Managed training services: a job as the request that each of them takes, rendered and not run."""
