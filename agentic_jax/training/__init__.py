"""Train states, jitted steps, checkpoints and the two training loops."""
