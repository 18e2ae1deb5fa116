"""Unpacks each shard in the loop itself."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator

from tests.truth.untagged import board

PACKED = zlib.compress(os.urandom(1 << 20) * 16, 1)


def read_shards() -> Iterator[int]:
    while True:
        rows = 0
        for _ in range(12):
            rows += len(zlib.decompress(PACKED))
        yield rows


def main() -> None:
    board.does("read_shards")
    for _ in read_shards():
        board.does("step")
        board.compute(0.4)
        board.does("read_shards")


main()
