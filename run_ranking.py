"""Trains and applies cross-encoders, which say how relevant a passage is to a query.

Not in the original release. `python run_ranking.py --help` lists the flags.
"""

from bert_tf.scripts import run_ranking

if __name__ == "__main__":
    run_ranking()
