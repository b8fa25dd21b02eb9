"""MLflow under /mlflow: the calls that Muster answers itself, and MLflow's own server and UI behind them."""
