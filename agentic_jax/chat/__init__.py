"""From messages to token ids and from sampled ids to tool calls."""
