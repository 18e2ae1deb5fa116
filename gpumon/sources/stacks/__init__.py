"""Stack samples: py-spy reads Python's stacks, ``/proc`` the states of threads; neither stops one.

What is read belongs to other programs, so all of it is untrusted, bounded text.
"""
