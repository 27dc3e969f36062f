# The names that `__init__.py` imports on first use, for editors and type checkers.

from bert_tf.config import BertConfig as BertConfig
from bert_tf.errors import UserError as UserError
from bert_tf.modeling import BertModel as BertModel
from bert_tf.predictor import Predictor as Predictor
from bert_tf.registry import register as register
from bert_tf.registry import run as run
from bert_tf.tokenization import FullTokenizer as FullTokenizer

__version__: str
