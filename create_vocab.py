"""Learns a WordPiece vocabulary from texts; `python create_vocab.py --help` lists the flags."""

from bert_tf.scripts import create_vocab

if __name__ == "__main__":
    create_vocab()
