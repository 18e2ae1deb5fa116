"""Level unequal GPUs: speed curves, the best split, a controller, and GPUs to try it on.

Only the standard library, no clock and no framework: what comes in are counts
and seconds, what comes out are counts.
"""
