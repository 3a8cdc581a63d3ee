"""Tasks: what one instance of a spout or bolt does with tuples. Decides, touches no socket or thread."""
