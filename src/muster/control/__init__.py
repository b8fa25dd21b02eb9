"""The control loop and the parts around it: admission, ticks, recovery, ingest and the leader's lease."""
