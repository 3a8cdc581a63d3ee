"""The command line as a process, against real parts."""

from tests.command_line import refused, state, streamlet

__all__ = ["refused", "state", "streamlet"]
