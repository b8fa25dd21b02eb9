"""Models of what a study measures: Gaussian processes over its space, in NumPy alone."""
