"""Options of launch.curate."""
