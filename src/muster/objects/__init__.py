"""Object storage for whoever needs it, with nothing but the standard library."""
