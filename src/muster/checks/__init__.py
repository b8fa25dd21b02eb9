"""What a check of a training found, and judgements of short runs, for the server and for programs. NumPy alone."""
