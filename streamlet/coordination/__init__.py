"""Small shared state with versions: a port in raw words (nodes, bytes, versions) and what stands behind it."""
