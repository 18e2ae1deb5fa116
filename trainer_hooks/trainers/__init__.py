"""What every tagger needs, and what those for Lightning and Hugging Face consist of.

``tagger``, ``callback_times`` and ``loader_facts`` serve Keras as well; ``loader_facts`` and
``patching`` also serve a training loop of the user's own.
"""
