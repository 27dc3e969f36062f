"""The steps that gpu.py measures: bert_tf, Hugging Face's transformers on PyTorch, and KerasHub."""

import contextlib
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu_rows import MAX_SENTENCE_LENGTH, NUM_BATCHES, Row

LEARNING_RATE, TRAIN_STEPS, WARMUP_STEPS, WEIGHT_DECAY = 2e-5, 10_000, 1000, 0.01
# Name of an input in transformers or KerasHub -> name in bert_tf.
_TORCH_NAMES = {
    "input_ids": "input_ids",
    "attention_mask": "input_mask",
    "token_type_ids": "segment_ids",
}
_KERAS_HUB_NAMES = {
    "token_ids": "input_ids",
    "padding_mask": "input_mask",
    "segment_ids": "segment_ids",
}


@dataclasses.dataclass(frozen=True)
class Program:
    """A training or inference step on the device.

    Attributes:
        start: starts step i, and returns its loss or logits.
        wait: waits for the last step.
        peak_bytes: returns the peak memory of the device; None if unknown.
        release: returns memory that is reserved, but not in use, to the device.
    """

    start: Callable[[int], Any]
    wait: Callable[[], object]
    peak_bytes: Callable[[], int | None] = lambda: None
    release: Callable[[], object] = lambda: None


def make_bert_tf_program(
    row: Row, jit_compile: bool, dropout: float = 0.1, warmup_steps: int = WARMUP_STEPS
) -> Program:
    """Builds the step of bert_tf, with or without XLA."""
    from bert_tf.base.quiet import import_tensorflow

    import_tensorflow()
    import keras
    import tensorflow as tf

    from bert_tf import training
    from bert_tf.config import BertConfig
    from bert_tf.modeling import BertClassifier
    from bert_tf.modeling.losses import cross_entropy
    from bert_tf.options import DeviceOptions, TrainingOptions
    from bert_tf.training.precision import cast_once

    jit = "true" if jit_compile else "false"
    devices = training.open_devices(
        DeviceOptions(precision=row.precision, jit_compile=jit, fixed_shapes=jit_compile)
    )
    keras.utils.set_random_seed(1)
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    with devices.scope():
        config = BertConfig(**row.config, **rates)
        model = BertClassifier(config, 2, recompute_layers=row.kind == "recompute")
    model.dropout.rate = dropout  # The configuration does not set that of the head.
    batches = [
        {name: tf.constant(values) for name, values in batch.items()}
        for batch in row.make_batches(trim=not jit_compile)
    ]
    # As in the scripts, shapes are static only with XLA.
    spec = {
        name: tf.TensorSpec(value.shape if jit_compile else [None] * value.shape.rank, value.dtype)
        for name, value in batches[0].items()
    }
    if not row.is_training:
        with devices.scope():
            model = cast_once(model, row.precision)
        infer = tf.function(
            lambda batch: model(batch, training=False)["logits"],
            input_signature=[spec],
            jit_compile=jit_compile,
            autograph=False,
        )
        return _tensorflow_program(lambda index: infer(batches[index % NUM_BATCHES]))
    options = TrainingOptions(learning_rate=LEARNING_RATE, random_seed=1)
    state = training.create_train_state(
        model,
        options,
        devices,
        num_train_steps=TRAIN_STEPS,
        num_warmup_steps=warmup_steps,
    )
    loss = training.mean_loss(lambda out, batch: cross_entropy(out["logits"], batch["label_ids"]))
    train = training.make_train_step(state, loss, options, devices, element_spec=spec)
    stop = tf.constant(0)
    return _tensorflow_program(lambda index: train(batches[index % NUM_BATCHES], stop)["loss"])


def make_keras_hub_program(row: Row) -> Program:
    """Builds the step of KerasHub's BertTextClassifier with the default `jit_compile`.

    Texts are padded to `row.length` tokens, as by KerasHub's preprocessor.
    """
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras
    import keras_hub
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.experimental.enable_tensor_float_32_execution(row.precision != "float32")
    if row.precision in ("bfloat16", "float16"):
        keras.config.set_dtype_policy(f"mixed_{row.precision}")
    config = row.config
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        hidden_dim=config["hidden_size"],
        intermediate_dim=config["intermediate_size"],
        max_sequence_length=config["max_position_embeddings"],
    )
    model = keras_hub.models.BertTextClassifier(backbone, num_classes=2, preprocessor=None)
    schedule = keras.optimizers.schedules.PolynomialDecay(
        LEARNING_RATE, TRAIN_STEPS, end_learning_rate=0.0
    )
    optimizer = keras.optimizers.AdamW(schedule, WEIGHT_DECAY, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "layer_norm"])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss)
    batches = []
    for batch in row._replace(is_like_mrpc=False).make_batches(trim=False):
        inputs = {name: tf.constant(batch[ours]) for name, ours in _KERAS_HUB_NAMES.items()}
        batches.append((inputs, tf.constant(batch["label_ids"])))
    if not row.is_training:
        model.make_predict_function()
        return _tensorflow_program(
            lambda index: model.predict_function([batches[index % NUM_BATCHES][:1]])
        )
    model.make_train_function()
    iterator = itertools.cycle(batches)
    return _tensorflow_program(lambda index: model.train_function(iterator))


def _tensorflow_program(start: Callable[[int], Any]) -> Program:
    import tensorflow as tf

    last: list[Any] = []

    def start_and_keep(index: int) -> Any:
        last[:] = [start(index)]
        return last[0]

    def wait() -> None:
        for value in tf.nest.flatten(last):
            value.numpy()

    if not tf.config.list_physical_devices("GPU"):
        return Program(start_and_keep, wait)
    get_memory_info = tf.config.experimental.get_memory_info
    return Program(start_and_keep, wait, lambda: get_memory_info("GPU:0")["peak"])


def make_torch_program(row: Row, compiled: bool) -> Program:
    """Builds the step of transformers' classifier, with the settings of `transformers.Trainer`."""
    import torch

    device = _torch_device()
    model = _torch_model(row)
    run = torch.compile(model) if compiled else model
    names = _TORCH_NAMES | ({"labels": "label_ids"} if row.is_training else {})
    batches = [
        {name: torch.tensor(batch[ours]).long().to(device) for name, ours in names.items()}
        for batch in row.make_batches(trim=True)
    ]
    if row.is_training:
        step = _make_torch_train_step(row, model, run)
    else:
        step = torch.inference_mode()(lambda batch: run(**batch).logits)
    start = lambda index: step(batches[index % NUM_BATCHES])  # noqa: E731
    if device == "cpu":
        return Program(start, lambda: None)
    cuda = torch.cuda
    return Program(start, cuda.synchronize, cuda.max_memory_allocated, cuda.empty_cache)


def make_torch_classify(row: Row, compiled: bool, folder: Path) -> Callable[[str], Any]:
    """Returns a function from a text to its probabilities; `folder` contains vocab.txt."""
    import torch
    import transformers

    tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
    tokenize = functools.partial(
        tokenizer, truncation=True, max_length=MAX_SENTENCE_LENGTH, return_tensors="pt"
    )
    model = _torch_model(row)
    run = torch.compile(model) if compiled else model
    device = _torch_device()

    @torch.inference_mode()
    def classify(text: str) -> list[float]:
        return run(**tokenize(text).to(device)).logits.float().softmax(-1)[0].tolist()

    return classify


def _torch_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _torch_model(row: Row) -> Any:
    """Builds a model with random weights and default attention (SDPA)."""
    import torch
    import transformers

    torch.manual_seed(1)
    # "high" allows TF32 in products of float32.
    torch.set_float32_matmul_precision("highest" if row.precision == "float32" else "high")
    # The original BERT code approximates GELU with tanh.
    config = transformers.BertConfig(**row.config, hidden_act="gelu_pytorch_tanh")
    model = transformers.BertForSequenceClassification(config).to(_torch_device())
    if row.is_training:
        return model.train()
    return model.eval().to(_torch_dtype(row) or torch.float32)


def _torch_dtype(row: Row) -> Any:
    """Returns the reduced type of activations, if any."""
    import torch

    return {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(row.precision)


def _make_torch_train_step(row: Row, model: Any, run: Any) -> Callable[[Any], Any]:
    import torch
    import transformers

    no_decay = ("bias", "LayerNorm.weight")
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if not n.endswith(no_decay)], "weight_decay": WEIGHT_DECAY},
        {"params": [p for n, p in named if n.endswith(no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, fused=True)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, WARMUP_STEPS, TRAIN_STEPS)
    device, dtype = _torch_device(), _torch_dtype(row)
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)

    def step(batch: Any) -> Any:
        with torch.autocast(device, dtype) if dtype else contextlib.nullcontext():
            loss = run(**batch).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        optimizer.zero_grad()
        return loss

    return step
