"""Configs of the studies in docs/results.md, with the functions that they add."""
