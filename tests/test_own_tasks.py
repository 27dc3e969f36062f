"""The tasks of docs/own_tasks.md; test_docs.py runs the page as it is, which takes minutes."""

import re

import keras
import numpy as np
import pytest

from bert_tf import UserError, registry
from bert_tf.data import array_ops
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.modeling import losses
from bert_tf.options import ConversionOptions, ExportOptions, ServingOptions
from bert_tf.predictor import Predictor
from bert_tf.serving.models import Model
from tests.oracle import ROOT
from tests.own_tasks_page import PROGRAM, page

SETTINGS = {
    r"examples/small_bert": "{model}",
    r"'output/": "'{output}/",
    r"'output'": "'{output}'",
    r"'max_seq_length': 64|max_seq_length=64": lambda match: match[0].replace("64", "24"),
    r"num_train_epochs=\d+": "num_train_epochs=1",
    r"\('train', 600\), \('eval', 200\)": "('train', 32), ('eval', 8)",
    r"num_train_epochs=1\)\)$": "num_train_epochs=2))",  # of the run that continues
}


@pytest.fixture(scope="module")
def results(tiny, tmp_path_factory):
    """The names of the page after its program has run, with the tiny model and few steps."""
    output = tmp_path_factory.mktemp("output")
    program = PROGRAM
    for pattern, new in SETTINGS.items():
        assert re.search(pattern, program, re.M), pattern
        new = new.format(model=tiny.folder, output=output) if isinstance(new, str) else new
        program = re.sub(pattern, new, program, flags=re.M)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        names = {**vars(page)}
        exec(program, names)
    return {**names, "output": output}
