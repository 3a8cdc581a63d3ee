"""Where a spout's progress is kept: ZooKeeper nodes or the offsets of a consumer group."""
