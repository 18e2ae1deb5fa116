"""Keras 3 callbacks ``PhaseTagger`` and ``NaNGuard``, and how they observe a ``fit``.

``taps`` see where a backend waits for input and which phases follow; ``ring`` records them;
``trainers`` has what the taggers of other trainers need as well.
"""
