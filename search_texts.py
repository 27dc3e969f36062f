"""Searches texts by meaning: builds an index of their vectors, and answers queries.

Not in the original release. `python search_texts.py --help` lists the flags.
"""

from bert_tf.scripts import search_texts

if __name__ == "__main__":
    search_texts()
