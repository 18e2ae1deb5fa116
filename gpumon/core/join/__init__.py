"""Joins what a training did with what a GPU did: which GPU, which phase, whose idle time.

Not here: reading rings (``sources.rings``), and the sums that come of it (``time``).
"""
