"""Every threshold that decides what is said to a user, each with its unit and its origin.

The rules that use them stand in ``judge``, or beside what they judge.
"""
