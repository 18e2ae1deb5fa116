"""The only package that calls NVIDIA's driver: from one C call up to a ``Frame`` of all GPUs.

``fields`` has what is read every few seconds.
"""
