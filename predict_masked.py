"""Predicts the words for [MASK] in texts.

Not in the original release. `python predict_masked.py --help` lists the flags.
"""

from bert_tf.scripts import predict_masked

if __name__ == "__main__":
    predict_masked()
