"""The methods of a callback that Keras calls while it trains."""

from __future__ import annotations

WHILE_TRAINING = (
    "on_train_begin",
    "on_epoch_begin",
    "on_train_batch_begin",
    "on_train_batch_end",
    "on_epoch_end",
)
