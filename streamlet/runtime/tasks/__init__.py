"""Tasks: running spouts and bolts, from an emit to the ack of its tree."""
