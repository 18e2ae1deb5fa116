"""Turns a state or a report into bytes somewhere: metrics, pages, text, pictures, files."""
