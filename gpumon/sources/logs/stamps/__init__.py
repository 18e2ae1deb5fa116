"""Moments in logs, however they are written, and rows put into their order."""
