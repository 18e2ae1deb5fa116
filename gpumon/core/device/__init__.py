"""What a board tells beside how busy it is: how full it works, and what is wrong with it.

Facts and sums of them. What is advised about them stands in ``judge``.
"""
