"""The scheduler: which jobs start next, and on which nodes. Pure functions of a state and a time."""
