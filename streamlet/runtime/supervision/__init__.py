"""Supervision of a run: from workers' reports to decisions. Pure."""
