"""What the kernel shows of a training's processes and of the machine, while the training waits.

Only read, never waited for, and bounded whatever a user starts. What it means is decided in
``core.host``.
"""
