"""Makes records for pre-training, with masked tokens and pairs of segments, from texts.

The command line of the original release: `python create_pretraining_data.py --helpfull` lists the
flags.
"""

from bert_tf.scripts import create_pretraining_data

if __name__ == "__main__":
    create_pretraining_data()
