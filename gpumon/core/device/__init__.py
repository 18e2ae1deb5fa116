"""Facts on a board besides how busy it is: how much of it works, and what is wrong with it.

Advice on them is in ``core/diagnosis``.
"""
