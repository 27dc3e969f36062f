"""What the scripts run."""

from bert_tf.quiet import import_tensorflow

# Programs that use a part of it are as quiet as the scripts.
import_tensorflow(for_script=False)
