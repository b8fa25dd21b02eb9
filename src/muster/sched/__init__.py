"""Who starts next, and where: pure functions of a state and a time."""
