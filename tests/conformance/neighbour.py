GREETING = "imported from beside the topology"
