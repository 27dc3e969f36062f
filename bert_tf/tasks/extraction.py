"""Public alias of `bert_tf.tasks.feature_extraction.extraction`."""

from bert_tf.tasks.feature_extraction.extraction import Extractor as Extractor
from bert_tf.tasks.feature_extraction.extraction import run as run
