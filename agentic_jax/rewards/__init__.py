"""Scores of finished trajectories and the rewards made of them."""
