"""The nouns and the one way to change them: no I/O, no clock, nothing but values."""
