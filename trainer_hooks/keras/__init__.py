"""Callbacks of Keras 3: ``PhaseTagger`` and ``NaNGuard``, and how a ``fit`` is seen from inside.

Where a backend waits for its input, and which phases that makes, is told by ``taps``; what is
written down goes to ``ring``; what taggers of other trainers need as well is in ``trainers``.
"""
