"""PLACEHOLDER: say what settings holds."""
