"""The HTTP API. All users and programs use Muster through it."""
