"""Where the GPU-hours of many machines went, over days, and what they cost."""
