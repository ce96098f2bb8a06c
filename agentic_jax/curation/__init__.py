"""Training data from rollouts: SFT trajectories, and RL problems by difficulty."""

from agentic_jax.curation.scripted import FRACTIONS, write_teacher_trajectories

__all__ = ["FRACTIONS", "write_teacher_trajectories"]
