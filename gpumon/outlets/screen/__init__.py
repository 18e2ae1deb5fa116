"""``gpumon top``: the view of a tick as lines of text, and the live screen that shows them."""
