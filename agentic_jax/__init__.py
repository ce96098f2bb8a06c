"""Reinforcement learning of tool-using language models in JAX."""
