"""Whatever is read: NVML, rings of trainings, other people's logs, recordings, a running daemon.

Each turns what is out there into the types of ``core`` and decides nothing. Not read but made:
the GPUs of ``simulated``, and the folder that a daemon lives in (``rings.daemon_folder``).
"""
