"""Ray as an engine: Muster chooses the nodes, placement groups reserve them, an agent per node runs the launchers."""
