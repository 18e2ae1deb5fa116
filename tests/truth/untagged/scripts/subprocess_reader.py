"""Reads the frames that another program decodes, as from ffmpeg."""

from __future__ import annotations

import subprocess
import sys
from typing import IO

from tests.truth.untagged import board

FRAME_BYTES = 1 << 20
DECODER = f"""\\
import sys, zlib
packed = zlib.compress(bytes(range(256)) * {FRAME_BYTES // 256}, 9)
while True:
    for _ in range(40):
        frame = zlib.compress(zlib.decompress(packed), 1)
    sys.stdout.buffer.write(zlib.decompress(frame))
"""


def read_frames(frames: IO[bytes], count: int) -> list[bytes]:
    return [frames.read(FRAME_BYTES) for _ in range(count)]


def main() -> None:
    decoder = subprocess.Popen([sys.executable, "-c", DECODER], stdout=subprocess.PIPE)
    assert decoder.stdout is not None
    while True:
        board.does("read_frames")
        read_frames(decoder.stdout, 4)
        board.does("step")
        board.compute(0.3)


main()
