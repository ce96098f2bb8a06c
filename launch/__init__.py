"""Entry points, run as python -m launch.NAME."""
