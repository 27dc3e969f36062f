# The names that `__init__.py` imports on first use, for editors and type checkers.

from bert_tf.api.estimators import TextClassifier as TextClassifier
from bert_tf.api.estimators import TextRegressor as TextRegressor
from bert_tf.api.estimators import TokenClassifier as TokenClassifier
from bert_tf.api.predictor import Predictor as Predictor
from bert_tf.api.sentence_encoder import SentenceEncoder as SentenceEncoder
from bert_tf.api.text_inputs import encode as encode
from bert_tf.base.errors import UserError as UserError
from bert_tf.config import BertConfig as BertConfig
from bert_tf.modeling import BertClassifier as BertClassifier
from bert_tf.modeling import BertModel as BertModel
from bert_tf.modeling import BertPretrainer as BertPretrainer
from bert_tf.modeling import BertSpanLabeler as BertSpanLabeler
from bert_tf.modeling import BertTokenClassifier as BertTokenClassifier
from bert_tf.options.registry import register as register
from bert_tf.options.registry import run as run
from bert_tf.tasks.multiple_choice.model import BertMultipleChoice as BertMultipleChoice
from bert_tf.tokenization import FullTokenizer as FullTokenizer

__version__: str
