"""Ctrl-C while the command ``streamlet`` is imported, or has done: the process ends at once and prints nothing."""

# Not `signal`, which imports half a dozen modules: this is the first module of the command.
import _signal  # type: ignore[import-not-found]
import sys


def _is_command() -> bool:
    """Tell whether this process was started as ``streamlet`` or ``python -m streamlet``."""
    started = sys.argv[0] if getattr(sys, "argv", None) else ""
    if started == "-m":  # so runpy has it while it imports the package of the module that is to run
        module = sys.orig_argv[-len(sys.argv)]
        return module == "streamlet" or (module.startswith("-") and module.endswith("mstreamlet"))
    if started.rpartition("/")[2] != "streamlet":
        return False
    try:
        with open(started, "rb") as script:  # noqa: PTH123 - pathlib takes as long as all the rest
            return b"streamlet.cli.main" in script.read(4096)
    except OSError:
        return False


# Asked at the first import: runpy changes `sys.argv[0]` afterwards.
_IS_COMMAND = _is_command()


def end_silently() -> None:
    """Let Ctrl-C end the command as the system does; leave every other program alone."""
    # Rule: nothing of ours is imported by the command while Ctrl-C raises. There is nobody yet to show a
    # KeyboardInterrupt, so it is a traceback; and one that comes in a callback of the import system is swallowed.
    if _IS_COMMAND and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def raise_again() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, if ``end_silently`` had changed it."""
    if _IS_COMMAND and _signal.getsignal(_signal.SIGINT) == _signal.SIG_DFL:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
