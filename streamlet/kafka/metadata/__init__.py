"""Floor 2: what is known of the cluster, and when to ask again. Pure."""
