"""Fine-tunes on questions about texts, answers them, and scores the answers (SQuAD 1.1 and 2.0).

The command line of the original release: `python run_squad.py --helpfull` lists the flags.
"""

from bert_tf.cli import run_squad

if __name__ == "__main__":
    run_squad()
