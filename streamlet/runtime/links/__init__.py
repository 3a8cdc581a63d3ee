"""PLACEHOLDER: say what links holds."""
