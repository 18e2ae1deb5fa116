"""Joins what a training did with what a GPU did: which GPU, which phase, whose idle time.

``batch_shares`` is how a batch is split over GPUs. Not here: reading rings
(``sources.ring_reader``), and the sums of the result (``accounting``).
"""
