"""Where the event log and the tables that reads need are kept."""
