"""Account for one GPU's time: busy, idle by cause, and pending.

``busy + idle by cause + pending = observed`` always holds. ``core.diagnosis`` turns the totals
into verdicts.
"""
