"""Callbacks of Keras 3: ``PhaseTagger`` and ``NaNGuard``, and how a ``fit`` is seen from inside.

Where a backend waits for its input is told by ``taps``; what is written down goes to ``ring``.
"""
