"""The loop that joins decisions and effects: admission, ticks, recovery, ingest and the leader's lease."""
