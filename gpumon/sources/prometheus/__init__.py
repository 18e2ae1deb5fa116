"""Asks a Prometheus server, or what speaks its HTTP API, for the figures of many machines.

An answer is untrusted: bounded in bytes and time, and checked before it is used.
"""
