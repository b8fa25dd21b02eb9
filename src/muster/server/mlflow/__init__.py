"""MLflow under /mlflow: calls that Muster answers itself, and MLflow's own server and UI for the rest."""
