"""Metrics and traces: pure statistics and one writer."""
