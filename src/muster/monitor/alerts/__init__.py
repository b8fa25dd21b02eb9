"""Alert rules: signals that are read from the state and the metrics, thresholds, and what follows. Pure functions."""
