"""``python -m trainer_hooks.trainer_bench``."""

import sys

from trainer_hooks.trainer_bench.main import main

sys.exit(main())
