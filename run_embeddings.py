"""Trains and evaluates encoders whose vectors say which texts match.

Not in the original release. `python run_embeddings.py --help` lists the flags.
"""

from bert_tf.scripts import run_embeddings

if __name__ == "__main__":
    run_embeddings()
