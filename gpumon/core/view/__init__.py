"""What gpumon shows of the present, as a value: the page, ``gpumon top`` and plots draw it."""
