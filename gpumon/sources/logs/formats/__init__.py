"""The readers of log formats; ``FORMATS`` in ``detect.py`` lists them."""
