"""``trainer-bench``: how fast one GPU or several train, and which batches and ratios suit them."""
