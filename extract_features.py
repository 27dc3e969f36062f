"""Writes what a trained encoder makes of texts: vectors of tokens, or of whole texts.

The command line of the original release: `python extract_features.py --helpfull` lists the flags.
"""

from bert_tf.cli import extract_features

if __name__ == "__main__":
    extract_features()
