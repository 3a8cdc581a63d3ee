"""Links between workers: frames, the handshake before them, and who links to whom."""
