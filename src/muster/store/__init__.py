"""The store: keeps the event log and the tables that reads need."""
