"""What only a finished log can tell: lanes of a picture, common pauses of GPUs, memory held.

Not here: reading logs (``sources.logs``), and the sums that live samples have too (``time``).
"""
