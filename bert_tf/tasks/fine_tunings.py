"""The fine-tuning scripts: which task their options describe."""

from collections.abc import Callable, Mapping
from typing import Any

from bert_tf.options import ClassifierOptions, NerOptions, SquadOptions
from bert_tf.tasks import classification, ner, squad
from bert_tf.tasks.base import Task

MAKERS: Mapping[type, Callable[[Any], Task]] = {
    ClassifierOptions: classification.make_task,
    SquadOptions: squad.make_task,
    NerOptions: ner.make_task,
}
