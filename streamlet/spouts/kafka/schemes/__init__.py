"""From a record's bytes to a tuple's values."""
