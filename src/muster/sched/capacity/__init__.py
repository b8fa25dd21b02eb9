"""What is free, and where: the index of nodes that placements look for seats in."""
