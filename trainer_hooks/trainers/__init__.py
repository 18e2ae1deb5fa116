"""What a tagger needs whatever it trains with, and what Lightning's and Hugging Face's are made of.

``tagger``, ``class_in_list``, ``callback_times``, ``phase_numbers`` and ``loader_facts`` serve
Keras as well, and the last two of them the phases of a loop of one's own.
"""
