"""Joins samples and phases into a state, tick by tick, and logs into reports.

It calls no outlet. Only what waits for ticks reads a clock: ``watch``, which also has the thread
that reads the source, and ``replay``.
"""
