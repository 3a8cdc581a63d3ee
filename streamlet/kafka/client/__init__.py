"""PLACEHOLDER: say what client holds."""
