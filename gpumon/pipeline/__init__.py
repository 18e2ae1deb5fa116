"""Turn samples and phases into a state, tick by tick, and logs into reports.

No outlet is called from here. Only ``watch`` and ``replay``, which wait for ticks, read a clock.
"""
