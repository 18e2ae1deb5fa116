"""Balance unequal GPUs: speed curves, the best split of a batch, and a controller.

Only the standard library, no clock and no framework.
"""
