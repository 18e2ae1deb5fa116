"""What a GPU is asked beside its rings of samples, field by field.

``table`` says what there is to ask and what is believed of the answers; the sampler asks by it
every few seconds, ``gpumon doctor`` once.
"""
