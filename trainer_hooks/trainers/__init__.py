"""What a tagger needs whatever it trains with, and what Lightning's and Hugging Face's are made of.

``tagger``, ``class_in_list``, ``callback_times`` and ``loader_facts`` serve Keras as well, and the
last of them a loop of one's own.
"""
