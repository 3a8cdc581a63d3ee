"""The command line: thin, one file a command; the only place that imports click and rich."""
