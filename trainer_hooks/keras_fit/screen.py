"""Where Keras prints its progress."""

from __future__ import annotations

import logging
import sys

import keras

_LOG = logging.getLogger(__name__)


def say(line: str) -> None:
    """Print a line where the progress bar was printed; log it where Keras logs instead."""
    if keras.config.is_interactive_logging_enabled():
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    else:
        _LOG.info(line)
