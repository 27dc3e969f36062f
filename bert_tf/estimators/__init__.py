"""Public alias of `bert_tf.api.estimators`: estimators with the methods of scikit-learn's."""

# ruff: noqa: F401
from bert_tf.api.estimators import TextClassifier, TextRegressor, TokenClassifier
