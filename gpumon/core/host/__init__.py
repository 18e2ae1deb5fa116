"""Why a training waits: what its machine showed of it meanwhile, and the rules that read that.

Pure: the kernel is asked in ``sources.host``. Which second is which reason's is decided by
whoever settles it (``time``).
"""
