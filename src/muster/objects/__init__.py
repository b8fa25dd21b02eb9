"""Client for object storage. Needs only the standard library."""
