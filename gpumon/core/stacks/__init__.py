"""What the stacks of a process show: where its code is, and why a GPU waits meanwhile.

Pure: no I/O. ``gpumon.sources.stacks`` takes the samples.
"""
