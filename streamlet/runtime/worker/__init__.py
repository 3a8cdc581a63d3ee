"""A worker process: its loop, its control channel, and the import of the topology."""
