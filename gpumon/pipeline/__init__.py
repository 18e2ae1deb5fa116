"""Joins samples and phases into a state, tick by tick, and logs into reports.

It calls no outlet and reads no clock.
"""
