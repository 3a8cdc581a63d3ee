"""Where a topology runs: in this process, in worker processes, on Spark executors. Chosen when it starts."""
