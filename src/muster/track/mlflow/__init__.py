"""MLflow compatibility on Muster's record: REST calls, plug-in stores, the client's URI scheme, import and export."""
