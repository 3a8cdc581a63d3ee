"""What running a topology means, for all backends: routing, tasks, the worker's loop, links, supervision."""
