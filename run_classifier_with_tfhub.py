"""Fine-tunes an encoder from TensorFlow Hub to classify texts and text pairs.

Has the original release's flags and more: `python run_classifier_with_tfhub.py --help` lists them.
"""

from bert_tf.scripts import run_classifier_with_tfhub

if __name__ == "__main__":
    run_classifier_with_tfhub()
