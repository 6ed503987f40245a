"""``python -m quapy_nemsis`` is the command ``quapy-nemsis``."""

import sys

from quapy_nemsis.cli import main

if __name__ == "__main__":
    sys.exit(main())
