"""Preflight of a job through the client: its rungs run as jobs in the ordinary queue, and the server judges them."""
