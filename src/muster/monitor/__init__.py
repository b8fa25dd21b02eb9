"""Monitoring: pure functions that compute cost, goodput and use from what was recorded."""
