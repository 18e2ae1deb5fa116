"""The report as a value: where the GPU time of a log, a daemon or a recording went.

What is said of it stands in ``judge``, its JSON in ``documents``.
"""
