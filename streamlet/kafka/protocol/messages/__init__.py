"""One module for each API (or pair of them): its request and response as field tables."""
