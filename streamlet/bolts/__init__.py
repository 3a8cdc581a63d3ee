"""Bolts that come with streamlet; each is named by the topology that wants it."""
