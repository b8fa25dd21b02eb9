"""Tuning: which parameters a study tries, and which trial goes on. Pure functions of a view of the study."""
