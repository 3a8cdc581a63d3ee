"""Settings that every Kafka client has: their names, defaults and checks."""
