"""Trains on pictures that tf.data decodes, one after another."""

from __future__ import annotations

import tensorflow as tf

from tests.truth.untagged import board


@tf.function  # type: ignore[untyped-decorator]
def decode(encoded: tf.Tensor) -> tf.Tensor:
    picture = tf.io.decode_jpeg(encoded)
    return tf.image.resize(picture, (224, 224))


def pictures() -> tf.data.Dataset:
    noise = tf.random.uniform((2400, 3200, 3), maxval=255, dtype=tf.int32)
    encoded = tf.io.encode_jpeg(tf.cast(noise, tf.uint8))
    return tf.data.Dataset.from_tensors(encoded).repeat().map(decode).batch(20)


def main() -> None:
    weights = tf.Variable(tf.zeros((3, 8)))
    board.does("input_wait")
    for batch in pictures():
        board.does("step")
        board.begins()
        weights.assign_add(tf.zeros((3, 8)) * tf.reduce_mean(batch))
        board.compute(0.3)
        board.does("input_wait")


main()
