"""Asks a server now and then, as people do."""

from __future__ import annotations

import random
import sys
import time
import urllib.request
from contextlib import suppress


def main(port: str) -> None:
    chance = random.Random(3)
    while True:
        time.sleep(chance.uniform(0.3, 2.0))
        with suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10).read()


main(sys.argv[1])
