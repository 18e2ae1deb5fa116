"""A wait for input that may have passed beside the compute is marked as such in the ring."""

from __future__ import annotations

from typing import Final

from trainer_hooks.ring.process_ring import describe_run, process_ring
from trainer_hooks.ring.ring_writer import RingWriter

_FACT: Final = "input_wait"
_GROSS: Final = "gross"


def say_that_the_wait_is_gross() -> None:
    """Add it to what the ring's first page says of the loader."""
    writer = process_ring().writer
    if writer is not None:
        describe_run(loader={**writer.facts.loader, _FACT: _GROSS})


def is_gross(writer: RingWriter) -> bool:
    """Whether that was said of the training under way."""
    return writer.facts.loader.get(_FACT) == _GROSS
