"""Fine-tunes models that answer questions about texts, and scores the answers (SQuAD 1.1, 2.0).

Has the original release's flags and more: `python run_squad.py --help` lists them.
"""

from bert_tf.scripts import names_of_original, run_squad

__getattr__ = names_of_original("run_squad")

if __name__ == "__main__":
    run_squad()
