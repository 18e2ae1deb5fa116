"""Inputs: NVML, phase rings, other tools' logs, recordings, a running daemon.

Each translates its input into the types of ``core`` and decides nothing. ``simulated`` makes its
GPUs up, and ``ring_reader.daemon_folder`` makes the daemon's own folder.
"""
