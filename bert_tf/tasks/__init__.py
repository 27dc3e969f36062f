"""What the scripts run."""

import bert_tf.backend  # noqa: F401
