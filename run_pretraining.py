"""Trains a model on masked words and next sentences, and evaluates it.

The command line of the original release: `python run_pretraining.py --helpfull` lists the flags.
"""

from bert_tf.scripts import run_pretraining

if __name__ == "__main__":
    run_pretraining()
