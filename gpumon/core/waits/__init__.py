"""Why a run waits: what its machine showed meanwhile, and the rules that find the reason.

Pure: ``sources.host`` reads the kernel.
"""
