"""The tools that a policy may call."""
