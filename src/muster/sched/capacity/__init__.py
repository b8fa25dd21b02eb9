"""Free capacity: the index of nodes in which placements look for seats."""
