"""Training scripts without any tag, and what stack samples show of them."""
