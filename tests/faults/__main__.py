"""``python -m tests.faults``: see ``table.py``."""

import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).parent
    # Modules have the names that pytest gives them.
    tests = here.parent
    sys.path[:0] = [str(here), str(tests / "support"), str(tests / "oracles")]
    from table import main

    sys.exit(main())
