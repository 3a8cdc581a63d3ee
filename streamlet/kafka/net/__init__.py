"""Floor 3: connections to brokers over non-blocking sockets, driven by their caller's poll."""
