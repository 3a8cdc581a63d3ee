"""Floor 0: what both towers stand on. Imports only the standard library."""
