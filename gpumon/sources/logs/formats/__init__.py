"""The readers of formats; ``detect.py`` lists them."""
