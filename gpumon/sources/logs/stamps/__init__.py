"""What the stamps of a log mean, how they are read, and rows put in their order.

Which cell of a row is its stamp stands in ``table``.
"""
