"""Writes out what the buffers of open files hold.

The interpreter does so before it ends, but for objects that refer to each other, as components and their tasks do. A
process that ends by ``os._exit`` has to do it itself.
"""

from __future__ import annotations

import gc
import io
import logging
import sys

logger = logging.getLogger("streamlet")


def flush_open_files() -> list[str]:
    """Flush every file that is open for writing; return what could not be.

    Not the standard streams, which have a last flush of their own, nor frozen objects (``gc.freeze``). Blocks as long
    as a write does. Texts first, then compressed files: what they hold goes into the buffer of another.
    """
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    standard = {id(part) for stream in streams for part in (stream, getattr(stream, "buffer", None))}
    texts, compressed, buffers = [], [], []
    for one in gc.get_objects():
        kind = type(one)  # not isinstance, which asks a proxy's own code
        if id(one) in standard:
            continue
        if issubclass(kind, io.TextIOWrapper):
            texts.append((one, one.flush))
        elif issubclass(kind, io.BufferedWriter | io.BufferedRandom):
            buffers.append((one, one.flush))
        elif issubclass(kind, io.BufferedIOBase) and kind.__module__ in ("gzip", "bz2", "lzma"):
            compressed.append((one, one.close))  # only its close writes its last part
    failed = []
    for file, write_out in (*texts, *compressed, *buffers):
        try:
            write_out()
        except OSError as error:
            failed.append(f"{getattr(file, 'name', file)!r}: {error}")
        except Exception:
            logger.debug("%r was not written out", type(file), exc_info=True)
    return list(dict.fromkeys(failed))  # a text and its buffer fail alike
