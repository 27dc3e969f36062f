"""Fine-tunes, evaluates and predicts classes of texts and of pairs of texts.

The command line of the original release: `python run_classifier.py --helpfull` lists the flags.
"""

from bert_tf.cli import run_classifier

if __name__ == "__main__":
    run_classifier()
