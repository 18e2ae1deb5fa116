"""One GPU's time, settled second by second: what was busy, what was idle and for which cause.

The law ``busy + idle by cause + pending = observed`` holds here. What it amounts to in words is
``judge``'s.
"""
