"""Fine-tunes and evaluates classifiers of texts and text pairs, and writes their predictions.

Has the original release's flags and more: `python run_classifier.py --help` lists them.
"""

from bert_tf.scripts import names_of_original, run_classifier

__getattr__ = names_of_original("run_classifier")

if __name__ == "__main__":
    run_classifier()
