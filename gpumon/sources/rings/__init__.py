"""Phase rings as files in folders that anybody may write to: found, opened, read, removed.

Nothing in them is believed before ``core.ring`` has checked it.
"""
