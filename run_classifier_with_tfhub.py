"""Fine-tunes an encoder in the form of TensorFlow Hub on texts and pairs of texts.

The command line of the original release: `python run_classifier_with_tfhub.py --helpfull` lists
the flags.
"""

from bert_tf.scripts import run_classifier_with_tfhub

if __name__ == "__main__":
    run_classifier_with_tfhub()
