"""The command line as a process, against real parts."""

from tests.command_line import consume, refused, state, streamlet

__all__ = ["consume", "refused", "state", "streamlet"]
