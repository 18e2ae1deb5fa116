"""The fields of a GPU other than its rings of samples.

``table`` lists them with their calls, intervals and valid ranges. The sampler reads them every few
seconds, and in a tick without new samples.
"""
