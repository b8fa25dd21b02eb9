"""MLflow on Muster's record: its REST calls, its plug-in stores, its client's scheme, import and export."""
