"""Writes the vectors that a trained encoder computes for the tokens of texts, or for whole texts.

Has the original release's flags and more: `python extract_features.py --help` lists them.
"""

from bert_tf.scripts import extract_features, names_of_original

__getattr__ = names_of_original("extract_features")

if __name__ == "__main__":
    extract_features()
