"""Floor 1: record batches (format v2), read and written without a socket."""
