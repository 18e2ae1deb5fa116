"""Says in the ring which part of each batch each GPU is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpumon.core.ring_facts import are_shares
from trainer_hooks.quiet_warning import QuietWarningOnce
from trainer_hooks.ring.ring_writer import RingWriter

_warn = QuietWarningOnce()


def tell_shares(writer: RingWriter, shares: Mapping[str, float]) -> None:
    """Restate the facts with these shares; a mark in the ring where they are others than before.

    The first shares of a process are no change, nor is to forget them. Never raises.

    Args:
        writer: Of the ring; called by the thread that trains, or before it does.
        shares: Which see, of ``RunFacts``. Empty: the training splits no batch any more.
    """
    if not writer.enabled:
        return
    try:
        facts, told = writer.facts, {str(gpu): float(share) for gpu, share in shares.items()}
        if told == facts.shares:
            return
        if not are_shares(told):
            _warn(f"gpumon is not told how batches are split: {told} are no parts of one batch")
            return
        changes = facts.ratio_changes + bool(told and facts.shares)
        writer.restate(replace(facts, shares=told, ratio_changes=changes))
        if changes > facts.ratio_changes:
            writer.event(changes)
    except Exception as error:  # noqa: BLE001 (odd shares must not end a training)
        _warn(f"gpumon is not told how batches are split: {error}")
