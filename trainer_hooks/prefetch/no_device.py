"""What is said, once, where there is no device to bring batches to."""

from __future__ import annotations

from trainer_hooks.quiet_warning import QuietWarningOnce

_warn = QuietWarningOnce()


def say_that_there_is_no_gpu(framework: str) -> None:
    """Batches are read ahead all the same."""
    _warn(
        f"prefetch_to_device: {framework} sees no GPU, so batches are only read ahead, "
        "and stay on the host",
        callers_up=2,
    )
