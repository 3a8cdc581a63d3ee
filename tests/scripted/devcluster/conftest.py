"""A state directory of its own for each test that asks for one."""

from tests.command_line import state

__all__ = ["state"]
