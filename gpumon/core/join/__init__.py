"""Joins what a training did with what a GPU did: which GPU, which phase, whose idle time.

``batch_shares`` joins nothing: it is how a batch is split over GPUs, for all who split one or
speak of it. Not here: reading rings (``sources.rings``), and the sums that come of it (``time``).
"""
