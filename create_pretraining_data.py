"""Creates pre-training records, with masked tokens and segment pairs, from texts.

Has the original release's flags and more: `python create_pretraining_data.py --help` lists them.
"""

from bert_tf.scripts import create_pretraining_data

if __name__ == "__main__":
    create_pretraining_data()
