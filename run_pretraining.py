"""Pre-trains a model on masked tokens and next sentences, and evaluates it.

Has the original release's flags and more: `python run_pretraining.py --help` lists them.
"""

from bert_tf.scripts import run_pretraining

if __name__ == "__main__":
    run_pretraining()
