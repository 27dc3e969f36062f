"""Classes of transformers that choose a class by the model, which always is a BERT here."""

from typing import Any

import keras

import bert_tf.compat.transformers.heads as heads
from bert_tf.compat.transformers.config import BertConfig
from bert_tf.optimization import NO_WEIGHT_DECAY, AdamWeightDecay, WarmupLinearDecay


class AutoConfig:
    """Reads a `BertConfig`."""

    from_pretrained = BertConfig.from_pretrained


class TFAutoModel:
    """Creates a `TFBertModel`; the other `TFAutoModel...` create models with a head."""

    from_pretrained, from_config = heads.TFBertModel.from_pretrained, heads.TFBertModel.from_config


def _auto(name: str) -> Any:
    cls = getattr(heads, f"TFBert{name}")
    methods = {"from_pretrained": cls.from_pretrained, "from_config": cls.from_config}
    return type(f"TFAutoModel{name}", (), methods)


TFAutoModelForMaskedLM = _auto("ForMaskedLM")
TFAutoModelForMultipleChoice = _auto("ForMultipleChoice")
TFAutoModelForNextSentencePrediction = _auto("ForNextSentencePrediction")
TFAutoModelForPreTraining = _auto("ForPreTraining")
TFAutoModelForQuestionAnswering = _auto("ForQuestionAnswering")
TFAutoModelForSequenceClassification = _auto("ForSequenceClassification")
TFAutoModelForTokenClassification = _auto("ForTokenClassification")


def create_optimizer(
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: int,
    weight_decay_rate: float = 0.0,
    adam_epsilon: float = 1e-8,
    **kwargs: Any,
) -> tuple[keras.Optimizer, Any]:
    """Returns Adam with weight decay, warm-up and linear decay to 0, and its learning rates.

    As in the original BERT, and unlike in transformers, the decay begins at step 0.
    """
    schedule = WarmupLinearDecay(init_lr, num_train_steps, num_warmup_steps)
    optimizer = AdamWeightDecay(
        schedule,
        weight_decay_rate=weight_decay_rate,
        epsilon=adam_epsilon,
        exclude_from_weight_decay=NO_WEIGHT_DECAY,
        bias_correction=True,
    )
    return optimizer, schedule
