"""One config file per result; each takes ":tiny"."""
