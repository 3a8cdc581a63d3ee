"""PLACEHOLDER: say what supervision holds."""
