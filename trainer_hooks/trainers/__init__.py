"""What a tagger needs whatever it trains with, and what Lightning's and Hugging Face's are made of.

``tagger``, ``class_not_instance``, ``callback_times`` and ``loader_facts`` serve Keras as well;
``loader_facts`` and the proxy of ``patching`` serve a loop of one's own.
"""
