"""Attribute idle time: which GPU a run uses, what it did when, and to which cause time was lost.

``batch_shares`` splits a batch over GPUs. ``sources.ring_reader`` reads the rings, and
``accounting`` sums up the result.
"""
