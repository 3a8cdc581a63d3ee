"""Ready-made spouts. Each sub-package is a bridge between a source and the words of ``streamlet``."""
