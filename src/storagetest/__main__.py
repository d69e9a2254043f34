"""``python -m storagetest``."""

from __future__ import annotations

import sys

from storagetest.cli import main

sys.exit(main())
