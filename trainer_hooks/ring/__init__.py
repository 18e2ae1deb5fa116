"""The ring file of this process: creating it, writing it, and describing the run in it.

``daemon_state`` and ``daemon_counters`` read what the daemon reports about this run's GPUs.
``guard`` and ``call_frames`` keep every hook from disturbing the run.
"""
