"""Fine-tunes a pre-trained encoder on MRPC. Takes about ten minutes on 2 cores."""

import pytest

from bert_tf.options import ClassifierOptions
from bert_tf.tasks import classification
from tests.oracle import data


@pytest.mark.shared
@pytest.mark.slow
def test_mrpc_accuracy(tmp_path):
    encoder = data("encoder")
    options = {
        "task_name": "MRPC",
        "data_dir": str(data("glue/MRPC")),
        "vocab_file": str(encoder / "vocab.txt"),
        "bert_config_file": str(encoder / "bert_config.json"),
    }
    trained = classification.run(
        ClassifierOptions(
            **options,
            init_checkpoint=str(encoder / "bert_model.ckpt"),
            output_dir=str(tmp_path / "trained"),
            do_train=True,
            do_eval=True,
            do_predict=True,
        )
    )
    # Always predicting "paraphrase" has accuracy 0.684.
    assert trained.metrics["eval_accuracy"] > 0.72
    assert trained.metrics["global_step"] == 343
    classification.run(
        ClassifierOptions(
            **options,
            init_checkpoint=str(tmp_path / "trained" / "model.ckpt-343"),
            output_dir=str(tmp_path / "predicted"),
            do_predict=True,
        )
    )
    results = [(tmp_path / name / "test_results.tsv") for name in ("trained", "predicted")]
    assert results[0].read_text() == results[1].read_text()
    assert len(results[0].read_text().splitlines()) == 1725
