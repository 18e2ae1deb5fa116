"""What the kernel shows of a run's processes and of the machine while the run waits.

Only read, never waited for, and bounded whatever a user starts. What it means is decided in
``core.waits``.
"""
