"""The classes for BERT of transformers 4 on TensorFlow: change the import line, and run."""

from bert_tf.compat.transformers.encoding import BatchEncoding as BatchEncoding
from bert_tf.compat.transformers.tokenizer import AutoTokenizer as AutoTokenizer
from bert_tf.compat.transformers.tokenizer import BertTokenizer as BertTokenizer
from bert_tf.compat.transformers.tokenizer import BertTokenizerFast as BertTokenizerFast
