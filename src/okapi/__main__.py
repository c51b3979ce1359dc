"""``python -m okapi`` is ``okapi``."""

import sys

from okapi.cli import main

sys.exit(main())
