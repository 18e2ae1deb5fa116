"""A training run that says in which phase it is, so that a test can stop its process there.

python stopped_training.py SPANS GPU PHASE [FIFO]

After ``STEPS`` steps it prints the phase it is in (``input_wait``, ``train_step``, or ``other`` for
code without a tag) and rests there for a moment. With ``FIFO``, it is a rank of a job of two, and
PHASE is ``leads`` or ``follows``: in each step rank 1 waits until rank 0 is there.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

from trainer_hooks import phase, step
from trainer_hooks.examples.busy_spans import BusySpans

STEPS = 10
STEP_S = 0.1
REST_S = 0.5


def main(spans: str, gpu: str, where: str, fifo: str = "") -> None:
    """Train until someone ends the process."""
    with BusySpans(Path(spans), int(gpu)) as device:
        if fifo:
            train_as_rank(device, where, Path(fifo))
        for number in itertools.count(1):
            with phase("input_wait"):
                time.sleep(0.002)
                show(where, "input_wait", number)
            with phase("train_step"):
                device.sleep(STEP_S)
                show(where, "train_step", number)
            step()
            show(where, "other", number)


def show(where: str, here: str, number: int) -> None:
    """Say that this is the phase in which to be stopped, and stay in it."""
    if (where, number) == (here, STEPS):
        print(here, flush=True)
        time.sleep(REST_S)


def train_as_rank(device: BusySpans, where: str, fifo: Path) -> None:
    """Train in step with the other rank, whose byte for each step comes through the pipe."""
    with fifo.open("r+b", buffering=0) as pipe:
        for number in itertools.count(1):
            with phase("input_wait"):
                time.sleep(0.002)
            with phase("train_step"):
                device.sleep(STEP_S)
                if where == "leads":
                    pipe.write(b".")
                    show("train_step", "train_step", number)
                else:
                    pipe.read(1)
            step()


if __name__ == "__main__":
    main(*sys.argv[1:])
