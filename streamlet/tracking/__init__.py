"""Tuple trees: which are open, done, or too old. Pure: numbers in, lists out."""
