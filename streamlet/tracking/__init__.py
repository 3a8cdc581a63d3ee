"""Tuple trees: which are open, which are done, which took too long. Pure: numbers in, lists out."""
