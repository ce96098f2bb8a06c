"""Estimators over repeated samples, and the evaluation loop."""
