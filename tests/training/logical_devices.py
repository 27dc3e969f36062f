"""Splits the first GPU, or the CPU if there is none, into logical devices."""


def split_device(count: int) -> None:
    """Creates `count` logical devices; call it before TensorFlow computes anything."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    device = (gpus or tf.config.list_physical_devices("CPU"))[0]
    # Logical GPUs need a limit, in MB.
    configuration = tf.config.LogicalDeviceConfiguration(memory_limit=4096 if gpus else None)
    tf.config.set_logical_device_configuration(device, [configuration] * count)
