"""Isolated execution of model-written code."""
