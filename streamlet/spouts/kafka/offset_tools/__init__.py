"""Stored offsets outside of a run: what `streamlet offsets` reads, changes and writes."""
