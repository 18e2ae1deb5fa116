"""A training run of steps of 0.1 s on a followed GPU, which does one thing that others do not.

python steady_training.py SPANS GPU KIND

steady          works on and on
hangs           waits for a batch that never comes, after 40 steps
stops:PHASE     stops itself in that phase, or in untagged code (other), after 40 steps
scribbles       writes noise over its own ring, after 40 steps
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time
from pathlib import Path

from trainer_hooks import phase, step
from trainer_hooks.examples.busy_spans import BusySpans

STEPS = 40


def main(spans: str, gpu: str, kind: str) -> None:
    """Train until the process is ended."""
    with BusySpans(Path(spans), int(gpu)) as device:
        for number in itertools.count(1):
            with phase("input_wait"):  # no sleep: a busy machine would make a loss of it
                _act(kind, "input_wait", number)
            with phase("train_step"):
                device.sleep(0.1)
                _act(kind, "train_step", number)
            step()
            _act(kind, "other", number)


def _act(kind: str, where: str, number: int) -> None:
    if number != STEPS:
        return
    if kind == f"stops:{where}":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif (kind, where) == ("hangs", "input_wait"):
        time.sleep(3600)
    elif (kind, where) == ("scribbles", "other"):
        (ring,) = Path(os.environ["GPUMON_RUNTIME_DIR"], "phases").glob(f"{os.getpid()}-*.ring")
        with ring.open("r+b") as file:
            file.seek(512)
            file.write(random.Random(7).randbytes(ring.stat().st_size - 512))


if __name__ == "__main__":
    main(*sys.argv[1:])
