"""Ray as an engine: Muster's scheduler places, placement groups reserve, an agent on every node runs the launchers."""
