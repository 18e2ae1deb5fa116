"""What a GPU is asked beside its rings of samples, field by field.

``table`` says what there is to ask and what is believed of the answers; the sampler asks by it
every few seconds, and in a tick where a ring brings nothing; ``gpumon doctor`` asks once.
"""
