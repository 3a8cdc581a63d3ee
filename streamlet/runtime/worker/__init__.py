"""A worker process: its loop, its control thread, and how it finds the user's topology."""
