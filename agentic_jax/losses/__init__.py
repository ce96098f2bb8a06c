"""Pure losses, ratios, credit and aggregation: arrays in, arrays out."""
