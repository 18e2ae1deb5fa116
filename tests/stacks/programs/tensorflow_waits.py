"""What TensorFlow waits for."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from tests.stacks.programs.cycle import run_in_turn, turn


def decode(number: Any) -> Any:
    time.sleep(0.05)
    return number


def layers(value: Any) -> Any:
    for _ in range(60):
        value = tf.sin(value) * 2
    return value


def tf_data() -> None:
    for _ in turn():
        next(BATCHES)


def tracing() -> None:
    for _ in turn():
        tf.function(layers)(tf.zeros((3,)))


def checkpoint() -> None:
    for _ in turn():
        CHECKPOINT.save(f"{FOLDER}/checkpoint")


def tensorboard() -> None:
    for _ in turn():
        WRITER.add_event(Event(file_version="." * 100_000))
        WRITER.flush()


if __name__ == "__main__":
    numbers = tf.data.Dataset.range(100_000)
    BATCHES = iter(numbers.map(lambda number: tf.py_function(decode, [number], tf.int64)))
    CHECKPOINT = tf.train.Checkpoint(weights=tf.Variable(tf.zeros((1000, 1000))))
    with tempfile.TemporaryDirectory() as FOLDER:
        WRITER = EventFileWriter(FOLDER)
        run_in_turn(tf_data, tracing, checkpoint, tensorboard)
