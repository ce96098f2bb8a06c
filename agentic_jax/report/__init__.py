"""A run as an offline page, from the curve to the step to the token."""
