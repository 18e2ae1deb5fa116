"""What else is installed under our name."""

from __future__ import annotations

from importlib.metadata import distributions


def strangers_called_gpumon() -> tuple[str, ...]:
    """Where a distribution called ``gpumon`` is installed that is not this one.

    Its top-level module has the same name as ours, so one of the two hides
    the other.
    """
    return tuple(
        str(found.locate_file(""))
        for found in distributions()
        if (found.metadata["Name"] or "").lower() == "gpumon"
    )
