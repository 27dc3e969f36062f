"""Shared helpers for the training tests: models without dropout, losses, golden batches."""

import numpy as np
import tensorflow as tf

from bert_tf import training
from bert_tf.modeling import BertClassifier, BertPretrainer, BertSpanLabeler
from bert_tf.modeling.losses import cross_entropy
from bert_tf.optimization import create_optimizer
from tests.modeling.helpers import masked_lm_loss
from tests.oracle import golden

NO_STOP = tf.constant(0)
STRATEGY = tf.distribute.OneDeviceStrategy(
    "/gpu:0" if tf.config.list_physical_devices("GPU") else "/cpu:0"
)
ONE_DEVICE = training.Devices(STRATEGY, "one_device", "")


class WithoutDropout:
    """Disables all dropout, including the classifier's hard-coded one, as in the goldens."""

    def call(self, inputs, training=None, dropout_seed=None):
        return super().call(inputs, training=False)


class Classifier(WithoutDropout, BertClassifier):
    pass


class Pretrainer(WithoutDropout, BertPretrainer):
    pass


class SpanLabeler(WithoutDropout, BertSpanLabeler):
    pass


def classifier_loss(outputs, batch):
    return tf.reduce_mean(cross_entropy(outputs["logits"], batch["label_ids"]))


def make_loss(loss_fn):
    """Wraps a loss function of a whole batch for `make_train_step`."""
    return training.Loss(
        totals=lambda batch: {}, share=lambda outputs, batch, totals: loss_fn(outputs, batch)
    )


def pretraining_loss(outputs, batch):
    masked_lm, _ = masked_lm_loss(
        outputs["masked_lm_logits"], batch["masked_lm_ids"], batch["masked_lm_weights"]
    )
    labels = batch["next_sentence_labels"][:, 0]
    next_sentence = cross_entropy(outputs["next_sentence_logits"], labels)
    return masked_lm + tf.reduce_mean(next_sentence)


def load_batches(name="classifier_10steps"):
    """Returns the batches of a golden training run."""
    case = np.load(golden(f"training/{name}.npz"))
    inputs = {key.removeprefix("in/"): case[key] for key in case.files if key.startswith("in/")}
    num_batches = len(inputs["input_ids"])
    return [
        {key: tf.constant(value[index]) for key, value in inputs.items()}
        for index in range(num_batches)
    ]


def broken_loss(factor):
    """Returns a classifier's loss with gradients times `factor`, such as infinity."""

    @tf.custom_gradient
    def broken(x):
        return x, lambda upstream: upstream * factor

    return lambda outputs, batch: broken(classifier_loss(outputs, batch))


def make_state(model, *schedule, loss_scale=None):
    optimizer = create_optimizer(*schedule)
    optimizer.build(model.trainable_variables)
    return training.TrainState(model, optimizer, loss_scale)
