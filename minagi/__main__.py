"""`python -m minagi` is `minagi`."""

import sys

from minagi.cli import main

sys.exit(main())
