"""Storm's model in pure Python, without Storm."""
