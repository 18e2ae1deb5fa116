"""What is said of time: verdicts, the rules they rest on, findings, advice, comparisons.

All pure, over a report or its parts. What time *is* stands in ``time``; how a sentence is set on
a screen, in ``outlets.text``.
"""
