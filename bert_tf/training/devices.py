"""Sets up the devices of a run: CPU, GPUs, several processes, or a TPU."""

import contextlib
import dataclasses
import json
import os
import socket
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.base import backend
from bert_tf.base.errors import UserError, counted, note, reason, warn
from bert_tf.base.progress import log
from bert_tf.base.signals import ended_by_signals
from bert_tf.data.input_pipeline import LENGTH_MULTIPLE
from bert_tf.data.parallel import num_cores
from bert_tf.options import DeviceOptions
from bert_tf.training.precision import dtype_policy, set_precision

# Run two batches concurrently: one computes while the other waits.
_BATCHES_AT_ONCE = 2
# Workers that can reach each other connect in seconds, unless another program uses an address.
_CONNECT_SECONDS = 300


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of a run, and how to compute on them.

    Attributes:
        strategy: the `tf.distribute` strategy.
        kind: `one_device`, `mirrored`, `multi_worker` or `tpu`.
        description: names the available devices and those in use, for the log.
        worker: index of this process; 0 is the chief. `workers` is the number of processes.
        one_thread: whether each operation runs on one thread.
        precision: floating-point type of the computation, as in `--precision`.
        jit_compile: whether XLA compiles steps; None if this depends on the amount of work, see
            `compilation.py`.
        fixed_shapes: whether every batch has the same shape, as on TPUs.
        length: under XLA, the maximum length to which texts are padded; None: `max_seq_length`.
    """

    strategy: tf.distribute.Strategy
    kind: str
    description: str
    worker: int = 0
    workers: int = 1
    one_thread: bool = False
    precision: str = "float32"
    jit_compile: bool | None = False
    fixed_shapes: bool = False
    length: int | None = None

    @property
    def replicas(self) -> int:
        """Number of replicas of the model, over all processes."""
        return self.strategy.num_replicas_in_sync

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files."""
        return self.worker == 0

    @property
    def has_gpus(self) -> bool:
        """Whether GPUs are available."""
        return bool(_list_gpus())

    @property
    def has_tf32(self) -> bool:
        """Whether there is a GPU that can compute in TF32, as NVIDIA's can since Ampere."""
        details = map(tf.config.experimental.get_device_details, _list_gpus())
        return any(gpu.get("compute_capability", (0, 0)) >= (8, 0) for gpu in details)

    @property
    def needs_full_batches(self) -> bool:
        """Whether every batch must have the same number of rows."""
        return bool(self.jit_compile) or self.kind == "tpu"

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Builds models on the devices, with their precision, in a `with` block."""
        with self.strategy.scope(), dtype_policy(self.precision):
            yield

    def padded_lengths(self, max_length: int) -> Sequence[int]:
        """Returns the lengths to which inference pads batches, in ascending order."""
        longest = self.length or max_length
        if self.fixed_shapes:
            return [longest]
        multiple = LENGTH_MULTIPLE if self.has_gpus or self.jit_compile else 1
        if self.jit_compile:  # XLA compiles a program for each length
            shorter = {multiple * -(-longest // (parts * multiple)) for parts in (4, 2)}
            return sorted({longest, *(length for length in shorter if length < longest)})
        return [*range(multiple, longest, multiple), longest]

    @property
    def batches_at_once(self) -> int:
        """Number of batches that inference computes in parallel."""
        if self.replicas > 1:
            return 1
        return max(num_cores(), _BATCHES_AT_ONCE) if self.one_thread else _BATCHES_AT_ONCE

    def barrier(self) -> None:
        """Waits until all processes call it."""
        self.from_chief([0])

    def from_chief(self, values: list[int]) -> list[int]:
        """Returns the chief's `values` in every process; waits until all processes call it."""
        if self.workers == 1:
            return values

        def chief_values() -> tf.Tensor:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            return tf.constant(values, tf.int64) * tf.cast(tf.equal(replica, 0), tf.int64)

        sums = self.strategy.reduce("SUM", self.strategy.run(chief_values), axis=None)
        return sums.numpy().tolist()

    def require_agreement(self, values: Mapping[str, int | str]) -> None:
        """Raises a UserError that names the first of `values` that differs from the chief's.

        Waits for all processes, which must all call it with the same names. Strings are compared by
        checksums. A name may end with the flag that determines the value, in parentheses.
        """
        numbers = [v if isinstance(v, int) else zlib.crc32(v.encode()) for v in values.values()]
        for name, own, chief in zip(values, numbers, self.from_chief(numbers), strict=True):
            if own == chief:
                continue
            numbers = f": {own} and {chief}" if isinstance(values[name], int) else ""
            raise UserError(f"Workers {self.worker} and 0 differ in the {name}{numbers}")


def open_devices(
    options: DeviceOptions, one_thread: bool = False, one_process: bool = False
) -> Devices:
    """Chooses and sets up the devices of a run; call it before TensorFlow computes anything.

    Waits for all processes of a distributed run; with `one_process`, raises a UserError if there
    are several. On a CPU, `one_thread` runs each operation on one thread. This is faster if many
    batches are computed in parallel, because threads that share an operation wait for the slowest
    of them.
    """
    backend.require_runtime(loads_model=True)
    for ignored in options.ignored_flag_warnings():
        warn(ignored)
    # Only other engines compute in int8; for it, TensorFlow uses float32.
    precision = "float32" if options.precision == "int8" else options.precision
    set_precision(precision)
    chosen = _choose_devices(options, one_thread, one_process)
    fixed_shapes = chosen.kind == "tpu" or options.fixed_shapes
    jit_compile: bool | None = options.jit_compile == "true"
    if options.jit_compile == "auto" and chosen.has_gpus:
        # On one GPU, XLA is worth its compile time if there is enough work. On CPUs, it never is.
        jit_compile = None if chosen.kind == "one_device" else fixed_shapes
    if chosen.kind == "tpu":
        jit_compile = False  # everything is compiled anyway
    devices = dataclasses.replace(
        chosen, precision=precision, jit_compile=jit_compile, fixed_shapes=fixed_shapes
    )
    if not devices.is_chief:
        log.setLevel("WARNING")  # also hides progress bars
    return devices


def _choose_devices(options: DeviceOptions, one_thread: bool, one_process: bool) -> Devices:
    kind, use_tpu = options.distribution_strategy, options.use_tpu
    if use_tpu and kind not in ("auto", "tpu"):
        raise UserError(f"--use_tpu=true conflicts with --distribution_strategy={kind}: omit one")
    addresses, worker = read_cluster()
    gpus = _list_gpus()
    if kind == "auto":
        kind = "one_device" if len(gpus) < 2 else "mirrored"
        if use_tpu:
            kind = "tpu"
        elif len(addresses) > 1:
            kind = "multi_worker"
    for gpu in gpus:
        # By default, TensorFlow allocates all of the memory and leaves none to other programs.
        # Errors occur if a notebook has already used the GPU, or split it into logical devices.
        with contextlib.suppress(RuntimeError, ValueError):
            tf.config.experimental.set_memory_growth(gpu, True)
    if kind == "tpu":
        return _connect_tpu(options)
    if len(addresses) > 1 and (one_process or kind != "multi_worker"):
        problem = f"TF_CONFIG names {len(addresses)} workers, but this runs in one process"
        raise UserError(f"{problem}: unset TF_CONFIG")
    if kind == "multi_worker":
        return _connect_workers(addresses, worker)
    description = _describe_gpus(gpus)
    if kind == "mirrored":
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
        used = counted(len(devices), "device")
        return Devices(strategy, kind, f"{description}, mirrored on {used}")
    # Creating the strategy starts TensorFlow's threads, so set their number first.
    if one_thread := one_thread and not gpus:
        try:
            tf.config.threading.set_intra_op_parallelism_threads(1)
        except RuntimeError:  # TensorFlow has computed something already.
            one_thread = False
    strategy = tf.distribute.OneDeviceStrategy("/gpu:0" if gpus else "/cpu:0")
    return Devices(strategy, kind, description + ", 1 used" * bool(gpus), one_thread=one_thread)


def _list_gpus() -> list[Any]:
    return tf.config.list_physical_devices("GPU")


def _describe_gpus(gpus: list[Any]) -> str:
    if not gpus:
        return f"the CPU ({counted(os.cpu_count() or 1, 'core')}; no GPU found)"
    name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "unknown")
    return f"{counted(len(gpus), 'GPU')} found ({name})"


def _connect_workers(addresses: list[str], worker: int) -> Devices:
    if not addresses:
        problem = "--distribution_strategy=multi_worker needs the environment variable TF_CONFIG"
        raise UserError(f"{problem}, such as {_EXAMPLE}")
    wait_for_workers(addresses, worker)
    listed = ", ".join(addresses)
    note(f"Waiting until TensorFlow connects {listed}, for at most {_CONNECT_SECONDS} seconds")
    try:
        with ended_by_signals(_CONNECT_SECONDS):
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise UserError(f"Could not connect the workers {listed}: {reason(error)}") from error
    # TensorFlow warns about the overhead of eager reductions, but these reduce only small values.
    tf.get_logger().addFilter(lambda record: "significant overhead" not in record.getMessage())
    workers = len(addresses)
    local_devices = _describe_gpus(_list_gpus())
    description = f"{workers} workers, this one on {local_devices}"
    return Devices(strategy, "multi_worker", description, worker, workers)


def _connect_tpu(options: DeviceOptions) -> Devices:
    address = options.tpu_name or "local"
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            address, options.tpu_zone, options.gcp_project
        )
        if address != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    except Exception as error:  # TensorFlow's error depends on the cause
        raise UserError(f"Cannot initialize --tpu_name={address}: {reason(error)}") from error
    return Devices(strategy, "tpu", f"a TPU with {strategy.num_replicas_in_sync} cores")


_POLL_SECONDS = 0.3
_LOG_SECONDS = 30.0
_EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
)


def read_cluster() -> tuple[list[str], int]:
    """Parses the environment variable `TF_CONFIG`.

    Returns the addresses (`host:port`) of all workers, chief first, and the index of this worker;
    ([], 0) without a cluster.
    """
    text = os.environ.get("TF_CONFIG", "").strip()
    if not text:
        return [], 0
    try:
        config = json.loads(text)
        jobs = {job: _check_addresses(hosts) for job, hosts in config.get("cluster", {}).items()}
        task = config.get("task", {})
        if not task and sum(map(len, jobs.values())) < 2:
            task = {"type": next(iter(jobs), "worker"), "index": 0}  # the only process
        job, index = str(task["type"]), int(task["index"])
        if jobs and (not jobs.keys() <= {"chief", "worker"} or not 0 <= index < len(jobs[job])):
            raise ValueError(job, index)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"TF_CONFIG must list the jobs chief and worker, such as {_EXAMPLE} ({error!r})"
        raise UserError(f"{problem}. Received: {text}") from error
    if not jobs:
        return [], 0
    chief = jobs.get("chief", [])
    worker = len(chief) + index if job == "worker" else index
    return [*chief, *jobs.get("worker", [])], worker


def _check_addresses(addresses: Any) -> list[str]:
    if not isinstance(addresses, list) or len(set(map(str, addresses))) < len(addresses):
        raise ValueError(addresses)
    for address in addresses:
        host, port = _host_and_port(str(address))
        if not host or not 0 < port < 2**16:
            raise ValueError(address)
    return addresses


def wait_for_workers(addresses: Sequence[str], worker: int) -> None:
    """Waits until every worker accepts connections at its address (`host:port`).

    Meanwhile this worker, whose index is `worker`, listens at its own address; afterwards it frees
    the port for TensorFlow. Raises a UserError if this port is in use.
    """
    address = addresses[worker]
    note(f"Worker {worker} of {len(addresses)}, at {address}")
    try:
        # The operating system accepts connections up to the backlog; no accept() is needed.
        server = socket.create_server(("", _host_and_port(address)[1]), backlog=len(addresses))
    except OSError as error:
        raise UserError(f"cannot listen: {error.strerror}", at=address) from error
    missing = [other for other in addresses if other != address]
    last_logged = time.monotonic() - _LOG_SECONDS + 3.0  # logs for the first time after 3 s
    with server:
        while missing := [other for other in missing if not _accepts_connections(other)]:
            if time.monotonic() - last_logged > _LOG_SECONDS:
                last_logged = time.monotonic()
                # A warning, because workers other than the chief log nothing below this level.
                warn(f"Waiting for the workers of TF_CONFIG at {', '.join(missing)}")
            time.sleep(_POLL_SECONDS)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _accepts_connections(address: str) -> bool:
    try:
        with socket.create_connection(_host_and_port(address), timeout=2.0):
            return True
    except OSError:
        return False
