"""Golden vectors: published reference values, mapped to our functions by one table."""
