"""Types cells for ``notebook.py`` and thinks in between."""

from __future__ import annotations

import random
import time

chance = random.Random(4)
print("from tests.truth.untagged import board", flush=True)
while True:
    time.sleep(chance.uniform(0.5, 3.0))
    print(f"board.compute({chance.uniform(0.2, 1.0)})", flush=True)
