"""Engines, episodes and the collection of groups of trajectories."""
