"""``python -m streamlet`` is ``streamlet``."""

from streamlet.cli.main import main

main()
