"""Studies: started, followed, and ended. What a study decides is in `muster.tune`; its trials are ordinary jobs."""
