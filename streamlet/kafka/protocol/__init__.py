"""Floor 1: Kafka's wire protocol without a socket. Bytes in, typed values out, and back."""
