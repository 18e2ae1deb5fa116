"""Summaries of a finished log beyond its totals: lanes, common pauses, held memory."""
