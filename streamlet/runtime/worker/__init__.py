"""PLACEHOLDER: say what worker holds."""
