"""Records that were given up: their headers, the writer, and what `streamlet dlq` reads."""
