"""Links between workers: frames, the handshake before them, dialing and listening."""
