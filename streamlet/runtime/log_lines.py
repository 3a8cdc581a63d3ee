"""Log records as the lines a person reads, alike in the coordinating process and from every worker."""

from __future__ import annotations

import logging
import traceback

COMPONENT_LOGGER = "streamlet.component"
"""Components log under this name and their own: ``streamlet.component.count``."""


def component_logger(component: str) -> logging.Logger:
    """What ``self.logger`` of a component is."""
    return logging.getLogger(f"{COMPONENT_LOGGER}.{component}")


def log_text(record: logging.LogRecord) -> str:
    """``count: message`` for a component's, the bare message for streamlet's own, ``logger: message`` for others'."""
    text = record.getMessage()
    if record.name.startswith(f"{COMPONENT_LOGGER}."):
        text = f"{record.name.removeprefix(COMPONENT_LOGGER + '.')}: {text}"
    elif record.name.partition(".")[0] != "streamlet":
        text = f"{record.name}: {text}"
    if record.exc_info and record.exc_info[1] is not None:
        text += "\n" + "".join(traceback.format_exception(record.exc_info[1])).rstrip()
    return text
