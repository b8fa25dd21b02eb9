"""The HTTP API: everything that a person or a program does with Muster goes through it."""
