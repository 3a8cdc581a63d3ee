"""PLACEHOLDER: say what tasks holds."""
