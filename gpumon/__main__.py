"""``python -m gpumon``."""

from __future__ import annotations

import sys

from gpumon.cli.main import main

sys.exit(main())
