"""Optimizers and learning rate schedule: comparison with the original and with Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from bert_tf.optimization import AdamWeightDecay, Lamb, WarmupLinearDecay, create_optimizer
from tests.oracle import golden


def test_learning_rate_matches_the_original():
    rates = np.load(golden("training/lr_schedule.npz"))
    for key in rates.files:
        init_lr, steps, warmup = key.removeprefix("lr").replace("steps", "").split("_")
        schedule = WarmupLinearDecay(float(init_lr), int(steps), int(warmup.removeprefix("warmup")))
        ours = [float(schedule(step)) for step in range(len(rates[key]))]
        # Rounding of 1 - t/N is relative to the peak rate, not to a rate near 0.
        tolerance = 1e-6 * float(init_lr)
        np.testing.assert_allclose(ours, rates[key], rtol=1e-6, atol=tolerance, err_msg=key)
    assert len(rates.files) == 6


def test_zero_warmup_and_zero_steps():
    assert float(WarmupLinearDecay(0.5, 10, None)(0)) == 0.5
    with pytest.raises(ValueError, match=r"at least 1\. Received: 0"):
        WarmupLinearDecay(0.5, 0)


def _make_variable(path, value):
    *scopes, name = path.split("/")
    if scopes:
        with keras.name_scope(scopes[0]):
            return keras.Variable(value, name=name)
    return keras.Variable(value, name=name)


@pytest.mark.parametrize(("case", "scale"), [("noclip", 0.02), ("clip", 5.0)])
def test_updates_match_the_original(case, scale):
    golden_values = np.load(golden("training/toy_optimizer.npz"))
    names = [
        key.removeprefix(f"{case}/init/")
        for key in golden_values.files
        if key.startswith(f"{case}/init/")
    ]
    used_names = [name for name in names if name != "unused"]
    variables = {
        name: _make_variable(name, golden_values[f"{case}/init/{name}"]) for name in used_names
    }
    assert [variable.path for variable in variables.values()] == used_names
    optimizer = create_optimizer(0.01, 20, 4)
    optimizer.build(list(variables.values()))
    for step in range(12):
        with tf.GradientTape() as tape:
            loss = 0.0
            for name, variable in variables.items():
                coef = golden_values[f"{case}/coef/{name}"]
                loss += tf.reduce_sum(coef * variable.value + 0.01 * scale * variable.value**2)
        gradients = tape.gradient(loss, [v.value for v in variables.values()])
        np.testing.assert_allclose(loss, golden_values[f"{case}/loss"][step], rtol=1e-5)
        np.testing.assert_allclose(
            tf.linalg.global_norm(gradients), golden_values[f"{case}/global_norm"][step], rtol=1e-5
        )
        optimizer.apply(gradients, list(variables.values()))
        for name, variable in variables.items():
            expected = golden_values[f"{case}/value/{name}"][step]
            np.testing.assert_allclose(variable.numpy(), expected, atol=2e-6, err_msg=name)
    assert int(optimizer.iterations.numpy()) == 12
    for name, (_, slots) in zip(used_names, optimizer.slots(), strict=True):
        for slot, value in slots.items():
            expected = golden_values[f"{case}/final/{name}/{slot}"]
            np.testing.assert_allclose(value.numpy(), expected, atol=1e-7, err_msg=name)


def test_embedding_gradients_are_summed_before_clipping():
    table = keras.Variable(np.zeros((3, 2), "float32"), name="table")
    # Row 1 is looked up 4 times: the summed gradient has norm 4 sqrt(2), the slices sqrt(8).
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(ops.take(table.value, tf.constant([1, 1, 1, 1]), axis=0))
    gradient = tape.gradient(loss, table.value)
    assert isinstance(gradient, tf.IndexedSlices)
    optimizer = AdamWeightDecay(1.0, beta_1=0.0, global_clipnorm=1.0)
    optimizer.build([table])
    optimizer.apply([gradient], [table])
    expected = [[0, 0], [1 / np.sqrt(2)] * 2, [0, 0]]
    np.testing.assert_allclose(optimizer.adam_m[0].numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("ours", "theirs", "epsilons", "values"),
    [
        (AdamWeightDecay, keras.optimizers.Adam, (1e-6, 1e-9), [0.5, -1.0, 2.0]),
        (Lamb, keras.optimizers.Lamb, (1e-7, 1e-7), [[0.5, -1.0, 2.0], [0.1, 0.0, 3.0]]),
    ],
)
def test_updates_match_keras(ours, theirs, epsilons, values):
    """Without weight decay, and with the bias correction that the original omits."""
    values = np.float32(values)
    variables = [keras.Variable(values, name=name) for name in "ab"]
    optimizer = ours(0.1, epsilon=epsilons[0], bias_correction=True)
    other = theirs(0.1, epsilon=epsilons[1])
    for each, variable in zip((optimizer, other), variables, strict=True):
        each.build([variable])
        for step in range(5):
            each.apply([tf.constant(np.cos(values * (step + 1)))], [variable])
    np.testing.assert_allclose(*(variable.numpy() for variable in variables), atol=1e-5)


def test_lamb_trust_ratio_includes_weight_decay():
    values = {"layer/kernel": [3.0, 4.0], "layer/bias": [3.0, 4.0], "zero/kernel": [0.0, 0.0]}
    variables = [_make_variable(path, np.float32(value)) for path, value in values.items()]
    optimizer = Lamb(0.5, weight_decay_rate=0.1, exclude_from_weight_decay=["bias"], epsilon=0.0)
    optimizer.build(variables)
    gradient = tf.constant([1.0, -1.0])
    optimizer.apply([gradient] * 3, variables)
    # After one step without bias correction, m / sqrt(v) is 0.1 / sqrt(0.001) times the sign.
    adam = 0.1 / np.sqrt(0.001) * np.array([1.0, -1.0])
    update = adam + 0.1 * np.array([3.0, 4.0])
    scaled = update * 5.0 / np.linalg.norm(update)
    kernel, bias, zero = (variable.numpy() for variable in variables)
    np.testing.assert_allclose(kernel, np.array([3.0, 4.0]) - 0.5 * scaled, rtol=1e-5)
    np.testing.assert_allclose(bias, np.array([3.0, 4.0]) - 0.5 * adam, rtol=1e-5)
    np.testing.assert_allclose(zero, -0.5 * adam, rtol=1e-5)


def test_warmup_as_a_proportion_is_rejected():
    with pytest.raises(ValueError, match=r"not a proportion\. Received: 0\.1"):
        create_optimizer(0.1, 30, 0.1)
    with pytest.raises(ValueError, match=r"Received: -3"):
        create_optimizer(0.1, 30, -3)


@pytest.mark.parametrize("rate", [0, "2e-5", float("nan"), np.float32(-1)])
def test_invalid_learning_rates_are_rejected(rate):
    with pytest.raises(ValueError, match=r"init_lr must be a finite number above 0\. Received: "):
        create_optimizer(rate, 30, 0)
    with pytest.raises(ValueError, match="learning_rate must be a finite number above 0"):
        AdamWeightDecay(rate)


def test_warmup_as_long_as_training_warns(run_log):
    create_optimizer(0.1, 10, 9)
    assert not run_log.records
    create_optimizer(0.1, 10, 60)
    assert "num_warmup_steps=60" in run_log.text


def test_training_longer_than_the_schedule_warns(run_log):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(create_optimizer(0.1, 3, 0), loss="mse")
    # In a long process, TensorFlow also warns: about retracing.
    ours = lambda: [r for r in run_log.records if r.name == "bert_tf"]  # noqa: E731
    model.fit(np.ones((6, 4)), np.ones((6, 1)), batch_size=2, verbose=0)
    assert not ours()
    model.fit(np.ones((6, 4)), np.ones((6, 1)), batch_size=2, verbose=0)
    (record,) = ours()
    assert record.getMessage().startswith("The learning rate was 0 after num_train_steps=3 of 6")


def test_optimizer_is_compiled_and_saved(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, name="d")])
    model.compile(create_optimizer(0.1, 10, 2), loss="mse")
    model.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=4, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert isinstance(loaded, AdamWeightDecay)
    assert loaded.get_config() == model.optimizer.get_config()
    assert int(loaded.iterations.numpy()) == 4
    np.testing.assert_array_equal(loaded.adam_m[0].numpy(), model.optimizer.adam_m[0].numpy())


def test_adam_converges_as_in_the_original():
    weights = keras.Variable([0.1, -0.2, -0.1], name="w")
    optimizer = AdamWeightDecay(0.2)
    optimizer.build([weights])
    for _ in range(100):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((weights.value - [0.4, 0.2, -0.5]) ** 2)
        optimizer.apply(tape.gradient(loss, [weights.value]), [weights])
    np.testing.assert_allclose(weights.numpy(), [0.4, 0.2, -0.5], atol=1e-2)
