"""What a training step costs on a machine that need not be there."""
