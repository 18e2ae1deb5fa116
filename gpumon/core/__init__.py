"""Types and computation without I/O, clock or threads.

Its own files are shared vocabulary: ``clock``, ``phase`` (phases and causes), ``verdict``,
``sample`` (one tick), ``state`` (everything after one tick) and ``wording``.
"""
