"""Turns a moment, a state or a report into bytes: recordings, metrics, pages, text, pictures."""
