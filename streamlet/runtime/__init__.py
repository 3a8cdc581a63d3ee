"""Tasks, links, workers and their supervision: everything between a plan and its backends."""
