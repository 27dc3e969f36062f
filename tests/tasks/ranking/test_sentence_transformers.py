"""A trained cross-encoder in sentence-transformers, if it is installed; it is not a dependency."""

import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest

from bert_tf.api.predictor import Predictor
from bert_tf.options import ConversionOptions, RankingOptions, registry
from tests.conftest import WORDS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not importlib.util.find_spec("sentence_transformers"),
        reason="sentence-transformers is not installed",
    ),
]

_CODE = """
import json, sys
from sentence_transformers import CrossEncoder
from torch import nn

model = CrossEncoder(sys.argv[1], device="cpu")
model.save_pretrained(sys.argv[1] + "_saved")
pairs = json.loads(sys.argv[2])
scores = model.predict(pairs, activation_fn=nn.Identity())
print(json.dumps([scores.tolist(), model.predict(pairs).tolist()]))
"""


def test_same_scores(tiny, tmp_path):
    (tmp_path / "train.tsv").write_text("".join(f"{x}\t{x} {y}\n" for x in WORDS for y in WORDS))
    options = RankingOptions(
        **tiny.flags,
        init_checkpoint=tiny.checkpoint,
        data_dir=str(tmp_path),
        output_dir=str(tmp_path / "out"),
        **{"anchor_column": "1", "positive_column": "2", "do_train": True, "num_train_epochs": 1.0},
    )
    registry.run(options)
    registry.run(
        ConversionOptions(
            input=options.output_dir, output=str(tmp_path / "hf"), to="sentence_transformers"
        )
    )
    # The last pair is truncated.
    pairs = [("good film", "the bad plot"), ("it", "was"), ("it was slow " * 5, "not fast " * 9)]
    found = Predictor(options.output_dir)(pairs)
    # A process of its own: TensorFlow and PyTorch do not share one.
    command = [sys.executable, "-c", _CODE, str(tmp_path / "hf"), json.dumps(pairs)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    expected = json.loads(output.splitlines()[-1])
    # What it saves is converted once more.
    saved, again = str(tmp_path / "hf_saved"), str(tmp_path / "again")
    registry.run(ConversionOptions(input=saved, output=again, to="sentence_transformers"))
    command[3] = again
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(output.splitlines()[-1]) == expected
    np.testing.assert_allclose([x.score for x in found], expected[0], atol=1e-5)
    np.testing.assert_allclose([x.probability for x in found], expected[1], atol=1e-5)
