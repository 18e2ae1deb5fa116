"""``trainer-bench``: how fast GPUs train, and which batch sizes and ratios suit them."""
