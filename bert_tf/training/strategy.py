"""Where a script runs: devices of this process, of several processes, or of a TPU."""

import contextlib
import dataclasses
import functools
import json
import os
from typing import Any

import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.training.rendezvous import wait_for_workers
from bert_tf.training.stopping import signals_kept

STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")


@dataclasses.dataclass(frozen=True)
class Devices:
    """What a run runs on.

    Attributes:
        strategy: of `tf.distribute`.
        kind: one of `STRATEGIES` without `auto`.
        description: what was found and what is used, for a person.
        worker: number of this process among `workers`.
        workers: how many processes train together.
        one_thread: whether each operation is computed by one thread.
    """

    strategy: tf.distribute.Strategy
    kind: str
    description: str
    worker: int = 0
    workers: int = 1
    one_thread: bool = False

    @property
    def replicas(self) -> int:
        """Copies of the model, over all processes."""
        return self.strategy.num_replicas_in_sync

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes."""
        return self.worker == 0

    @property
    def fixed_shapes(self) -> bool:
        """Whether every batch must have the same shape, as on TPUs."""
        return self.kind == "tpu"

    @property
    def has_gpus(self) -> bool:
        """Whether it runs on GPUs. XLA pays there; a CPU takes longer to compile than it gains."""
        return bool(tf.config.list_physical_devices("GPU"))

    def from_chief(self, value: int) -> int:
        """The chief's number, in every process.

        Nobody goes on before all are here: it also keeps processes in step around a file that
        the chief writes.
        """
        if self.workers == 1:
            return value
        result = self._sum_of_chief(tf.constant(value, tf.int64))
        return int(self.strategy.experimental_local_results(result)[0])

    @functools.cached_property
    def _sum_of_chief(self) -> Any:
        @tf.function
        def total(number: tf.Tensor) -> Any:
            def one_replica() -> tf.Tensor:
                context = tf.distribute.get_replica_context()
                first = tf.equal(context.replica_id_in_sync_group, 0)
                mine = tf.where(first, number, tf.zeros_like(number))
                return context.all_reduce(tf.distribute.ReduceOp.SUM, mine)

            return self.strategy.run(one_replica)

        return total


def choose_devices(
    kind: str = "auto",
    *,
    one_thread: bool = False,
    use_tpu: bool = False,
    tpu_name: str | None = None,
    tpu_zone: str | None = None,
    gcp_project: str | None = None,
) -> Devices:
    """Finds the devices and makes their strategy; for several processes it waits for all of them.

    `auto` is a TPU with `use_tpu`, several processes where `TF_CONFIG` names them, all GPUs of
    this machine where there are several, and one device otherwise. To be called before anything
    is computed.

    Args:
        kind: one of `STRATEGIES`.
        one_thread: on one device that is a CPU each operation is to be computed by one thread, in
            all of the process, where nothing was computed before.
        use_tpu: the original's flag.
        tpu_name: name or address of the TPU; the one of this machine by default.
        tpu_zone: its zone.
        gcp_project: its project.

    Raises:
        UserError: there is no such device, `TF_CONFIG` is not right, or the flags contradict each
            other.
    """
    if use_tpu and kind not in ("auto", "tpu"):
        raise UserError(
            f"--use_tpu=true and --distribution_strategy={kind} exclude each other: drop one"
        )
    cluster = _cluster()
    gpus = tf.config.list_physical_devices("GPU")
    if kind == "auto":
        kind = "one_device" if len(gpus) < 2 else "mirrored"
        if use_tpu:
            kind = "tpu"
        elif cluster and len(cluster.workers) > 1:
            kind = "multi_worker"
    for gpu in gpus:
        # Otherwise TensorFlow takes all of the memory at once, other programs' share included.
        with contextlib.suppress(RuntimeError):  # a notebook has used the GPU already
            tf.config.experimental.set_memory_growth(gpu, True)
    if kind == "tpu":
        return _tpu(tpu_name, tpu_zone, gcp_project)
    if kind == "multi_worker":
        return _multi_worker(cluster)
    if cluster and len(cluster.workers) > 1:
        raise UserError(
            f"TF_CONFIG names {len(cluster.workers)} workers, but --distribution_strategy={kind} "
            "runs in one process: unset TF_CONFIG, or pass --distribution_strategy=multi_worker"
        )
    found = _describe(gpus)
    if kind == "mirrored":
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
        return Devices(strategy, kind, f"{found}, mirrored on {len(devices)} devices")
    # Before the strategy: it starts TensorFlow's threads.
    one_thread = one_thread and not gpus and _compute_on_one_thread()
    strategy = tf.distribute.OneDeviceStrategy("/gpu:0" if gpus else "/cpu:0")
    return Devices(strategy, kind, f"{found}, 1 used" if gpus else found, one_thread=one_thread)


def _compute_on_one_thread() -> bool:
    """Lets each operation have one thread; False where something was computed before."""
    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
    except RuntimeError:
        return False
    return True


def _describe(gpus: list[Any]) -> str:
    if not gpus:
        return f"the CPU ({os.cpu_count()} cores; no GPU found)"
    name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "unknown")
    return f"{len(gpus)} GPU{'s' if len(gpus) > 1 else ''} found ({name})"


@dataclasses.dataclass(frozen=True)
class _Cluster:
    """Addresses of the workers, the chief first, and which of them this process is."""

    workers: tuple[str, ...]
    worker: int


def _cluster() -> _Cluster | None:
    text = os.environ.get("TF_CONFIG", "").strip()
    if not text:
        return None
    example = (
        '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, '
        '"task": {"type": "worker", "index": 0}}'
    )
    try:
        config = json.loads(text)
        jobs = {name: _addresses(found) for name, found in config.get("cluster", {}).items()}
        task = config.get("task", {})
        if not task and sum(map(len, jobs.values())) < 2:
            task = {"type": next(iter(jobs), "worker"), "index": 0}
        kind, index = str(task["type"]), int(task["index"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"The environment variable TF_CONFIG cannot be read ({error!r}). It should look like "
            f"{example}. Received: {text}"
        ) from error
    if not jobs:
        return None
    others = sorted(set(jobs) - {"chief", "worker"})
    if others or kind not in jobs:
        raise UserError(
            f"TF_CONFIG may have the jobs chief and worker, and the task must be in one of them. "
            f"Received: jobs {', '.join(sorted(jobs))}, task {kind}. Example: {example}"
        )
    workers = (*jobs.get("chief", ()), *jobs.get("worker", ()))
    if not 0 <= index < len(jobs[kind]):
        raise UserError(
            f"TF_CONFIG: there is no {kind} {index}, the cluster has {len(jobs[kind])} of them"
        )
    return _Cluster(workers, index + (len(jobs.get("chief", ())) if kind == "worker" else 0))


def _addresses(found: Any) -> list[str]:
    """The addresses of a job.

    Raises:
        ValueError: they are not a list of `host:port`, each once.
    """
    if not isinstance(found, list) or len(set(map(str, found))) < len(found):
        raise ValueError(f"not a list of different addresses: {found}")
    for address in found:
        host, _, port = str(address).rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 2**16:
            raise ValueError(f"not host:port: {address}")
    return found


def _multi_worker(cluster: _Cluster | None) -> Devices:
    if not cluster:
        raise UserError(
            "--distribution_strategy=multi_worker needs the environment variable TF_CONFIG, which "
            "names all workers and says which of them this process is; see docs/distributed.md"
        )
    wait_for_workers(cluster.workers, cluster.worker)
    try:
        with signals_kept():
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"The workers {', '.join(cluster.workers)} could not be connected: {reason}"
        ) from error
    found = _describe(tf.config.list_physical_devices("GPU"))
    return Devices(
        strategy,
        "multi_worker",
        f"{len(cluster.workers)} workers, this one on {found}",
        cluster.worker,
        len(cluster.workers),
    )


def _tpu(name: str | None, zone: str | None, project: str | None) -> Devices:
    place = name or "local"
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=place, zone=zone, project=project
        )
        if place != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    except Exception as error:  # everything from a wrong address to a missing library ends here
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"No TPU could be started at {place} (--tpu_name): {reason}. On a TPU VM install "
            "tensorflow-tpu and leave --tpu_name out; without a TPU drop --use_tpu"
        ) from error
    return Devices(strategy, "tpu", f"a TPU with {strategy.num_replicas_in_sync} cores")
