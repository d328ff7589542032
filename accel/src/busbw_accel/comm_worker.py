"""The communication worker: exchanges gradients one at a time, in the same order on every rank,
over its own communicators.
"""

import atexit
import math
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch

from busbw.core.errors import UsageError
from busbw_accel.codecs import codec_for, coder
from busbw_accel.codecs.base import poison_if_failed, ring_bytes
from busbw_accel.communicator import Communicator, Work
from busbw_accel.heartbeat import Heartbeat
from busbw_accel.mesh import Mesh
from busbw_accel.methods import DENSE
from busbw_accel.residual_state import BucketPiece, BucketState, ResidualState
from busbw_accel.settings import Settings
from busbw_accel.sparse import Room, SparseAverage
from busbw_accel.traffic import Traffic
from busbw_accel.worker_streams import WorkerStreams

# Gradients of other types are sent densely: codecs keep and send at most fp32.
COMPRESSIBLE = (torch.float32, torch.float16, torch.bfloat16)
# Bytes of a piece in two dimensions. CPUs have no launch cost, so smaller pieces overlap better
# (benchmarks/accel_2cpu_202611).
CHUNK, CHUNKS = 32 << 20, {"cpu": 4 << 20}
_Job = Callable[[], bool]  # returns False to stop the thread
# Seconds that an exit without close() waits for exchanges, such as one of local steps with `delay`;
# fewer after an exception, since the other ranks may wait for this one.
EXIT_S, FAILED_EXIT_S = 60.0, 5.0


class CommWorker:
    """Averages flat gradients over all ranks of a mesh.

    The result has the same bits on every rank.
    """

    def __init__(self, settings: Settings, mesh: Mesh) -> None:
        self.settings = settings
        self.mesh = self._owned = mesh
        self.memory = ResidualState()
        self.traffic = Traffic()
        self.step = 0  # of the training; the frontend counts it
        self._room = Room()
        self._failure: Exception | None = None
        self._heartbeat = Heartbeat(mesh)
        self._streams = WorkerStreams()
        self._jobs: queue.SimpleQueue[_Job] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Exchange without a network, to time a step without it.

        Results are wrong, and the kept state is discarded.
        """
        self._use(self._owned.silenced())
        try:
            yield
        finally:
            self._use(self._owned)

    def _use(self, mesh: Mesh) -> None:
        with self.at_rest():
            self.mesh = mesh
            self.memory.clear()  # it refers to the communicators of the former mesh

    def average(
        self,
        flat: torch.Tensor,
        names: Sequence[str],
        shapes: Sequence[Sequence[int]],
        *,
        last: bool = False,
    ) -> torch.futures.Future[torch.Tensor]:
        """Start averaging `flat` in place.

        `flat` is one-dimensional and contiguous. It holds the gradients of the parameters `names`,
        which have these `shapes`. Complex numbers are exchanged as pairs of real ones. `last`:
        nothing is left to compute in this step. The worker's thread does it; on a GPU it queues the
        work on the worker's streams.

        Returns:
            A future of `flat`. It raises the exception of a failed exchange.
        """
        return self.run(flat, lambda: self.exchange(flat, names, shapes, last=last))

    def average_sparse(self, gradient: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """Start averaging a sparse gradient (see `busbw_accel.sparse`).

        Returns a future of a new sparse tensor.
        """
        return self.run(gradient, lambda: self._exchange_sparse(gradient))

    def run(
        self, tensor: torch.Tensor, work: Callable[[], torch.Tensor | None], lane: int | None = None
    ) -> torch.futures.Future[torch.Tensor]:
        """Run `work`, which uses `tensor`, in the worker's thread.

        On a GPU too: to queue the exchange of a bucket takes about a millisecond, in which
        backward's thread would not keep the GPU busy.

        `lane`: as in `WorkerStreams.after_now`.

        Returns a future of the result of `work`, or of `tensor` if that is None. Raises the first
        failure of the worker again.
        """
        self.ready()
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future(
            devices=[tensor.device] if tensor.is_cuda else None
        )
        in_order = self._streams.after_now(tensor, lane) if tensor.is_cuda else nullcontext

        def job() -> bool:
            try:
                with in_order():
                    self._heartbeat.begun += 1
                    result = work()
                    # On a GPU this records an event on the stream.
                    future.set_result(tensor if result is None else result)
            except Exception as error:  # noqa: BLE001 - it is set on the future
                # Jobs that are queued behind a failure get the same error.
                self._failure = self._failure or self._explain(error)
                future.set_exception(self._failure)
            return True

        self._job_queue().put(job)
        return future.then(lambda ended: ended.wait())  # so that DDP's C++ code sees the exception

    @property
    def closed(self) -> bool:
        return self._closed

    def ready(self) -> None:
        """Raise if an exchange has failed or the worker is closed."""
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise UsageError(
                "a gradient was submitted after close()", "close it after the last backward"
            )

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """A context for an exchange in this thread.

        It raises an earlier failure, and records and explains a new one.
        """
        self.ready()
        self._heartbeat.begun += 1
        try:
            yield
        except Exception as error:
            self._failure = self._explain(error)
            if self._failure is error:
                raise
            raise self._failure from error

    def _job_queue(self) -> "queue.SimpleQueue[_Job]":
        if self._jobs is None:
            jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
            self._jobs = jobs

            def work() -> None:
                goes_on = True
                while goes_on:
                    # no name for the job: it would keep the worker alive until the next one
                    goes_on = jobs.get()()

            self._thread = threading.Thread(target=work, name="busbw-accel", daemon=True)
            self._thread.start()
            _working.add(self)
        return self._jobs

    def _stop_thread(self) -> threading.Thread | None:
        """Let the thread, if there is one, end after the jobs that it has."""
        if self._jobs is not None:
            self._jobs.put(lambda: False)
        return self._thread

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """A context in which the worker is idle, so that its state can be read and changed.

        On GPUs this holds in stream order.
        """
        if self._jobs is not None:
            done = threading.Event()

            def signal() -> bool:
                done.set()
                return True

            self._jobs.put(signal)
            done.wait()
        with self._streams.at_rest():
            yield

    def check(self) -> None:
        """Raise if an exchange failed that was not waited for.

        Covers work that the streams have completed.
        """
        try:
            self._owned.check()
            coder.check()
        except (RuntimeError, ValueError) as error:
            raise self._explain(error) from error

    def close(self) -> None:
        """Stop the thread, the heartbeat and the communicators.

        Every rank must call it, after its last gradient.

        Raises:
            RuntimeError: one of the last exchanges has failed, and was not reported yet.
        """
        if self._closed:
            return
        with self.at_rest():
            self._closed = True
        self._stop_thread()
        try:
            self._owned.close()
            coder.check()
        except (RuntimeError, ValueError) as error:
            if self._failure is None:
                raise self._explain(error) from error
        finally:
            coder.forget()  # what a failed exchange has left is no error of the next worker
            self._heartbeat.stop()
            self.memory.clear()

    def _explain(self, error: Exception) -> Exception:
        """The error for a failed exchange. It names the lost ranks, or those that did not come."""
        if isinstance(error, UsageError):
            return error
        lost, behind = self._heartbeat.lost(), self._heartbeat.behind()
        who = f"lost: {', '.join(lost)}" if lost else "all ranks are alive"
        if behind and not lost:
            who += f", but not all came to it: {', '.join(behind)} began fewer exchanges"
        return RuntimeError(
            f"busbw accel: an exchange failed at rank {self.mesh.world.rank} of"
            f" {self.mesh.world.size}; {who} ({error})"
        )

    def exchange(
        self,
        flat: torch.Tensor,
        names: Sequence[str],
        shapes: Sequence[Sequence[int]],
        *,
        last: bool = False,
        keep: bool = True,
    ) -> None:
        """As `average`, in this thread; see `explaining`. With `keep` false, what codecs keep of
        these parameters is neither used nor changed.
        """
        self.ready()
        if self.mesh.world.size == 1:
            return
        if flat.is_complex():
            flat, shapes = torch.view_as_real(flat).view(-1), [(*shape, 2) for shape in shapes]
        elements = sum(map(math.prod, shapes))
        if elements != flat.numel():  # codecs would leave the rest as it is
            raise ValueError(
                f"{names[0]}, ...: {flat.numel()} elements of gradients, {elements} of parameters"
            )
        nbytes = flat.numel() * flat.element_size()
        method = DENSE
        if flat.numel() and flat.dtype in COMPRESSIBLE:
            method = self.settings.method_for(nbytes, last=last)
        two_d = self.mesh.two_d and self.settings.two_d_for(nbytes, method)
        self.traffic.buckets += 1
        if method == DENSE and not two_d:
            codec = codec_for(DENSE, self.settings)
            self.traffic.add_across(codec.exchange(flat, self.mesh.world, {}, 0))
            return
        inside, across = (self.mesh.inside, self.mesh.across) if two_d else (None, None)
        fresh = BucketState(
            tuple(map(tuple, shapes)),
            self._cut(flat, inside),
            inside,
            across or self.mesh.world,
            flat.device,
        )
        bucket = fresh if method == DENSE or not keep else self.state_of(names, fresh)
        self._exchange(flat, method, bucket)

    def state_of(self, names: Sequence[str], fresh: BucketState) -> BucketState:
        """The state of a bucket. A new one may take that of buckets on other streams."""
        bucket = self.memory.find(names, fresh)
        if bucket is not None:
            return bucket
        with self._streams.alone(fresh.device):
            return self.memory.add(names, fresh)

    def _exchange_sparse(self, gradient: torch.Tensor) -> torch.Tensor:
        world = self.mesh.world
        if world.size == 1:
            return gradient.coalesce()
        self.traffic.buckets += 1
        average = SparseAverage(
            gradient, world, len(set(self.mesh.hosts)), self.settings.wire, self._room
        )
        result = average.result()
        self.traffic.add_across(average.across)
        return result

    def _cut(self, flat: torch.Tensor, inside: Communicator | None) -> tuple[BucketPiece, ...]:
        if inside is None:
            return (BucketPiece(0, flat.numel(), 0),)
        chunk = self.settings.chunk or CHUNKS.get(flat.device.type, CHUNK)
        largest = chunk // flat.element_size() // inside.size * inside.size
        pieces = []
        for begin in range(0, flat.numel(), largest):
            length = min(largest, flat.numel() - begin)
            pieces.append(BucketPiece(begin, length, -length % inside.size))
        return tuple(pieces)

    def _exchange(self, flat: torch.Tensor, method: str, bucket: BucketState) -> None:
        codec, inside = codec_for(method, self.settings, bucket.shapes), bucket.inside
        if inside is None:
            self.traffic.add_across(
                codec.exchange(flat, bucket.across, bucket.states[0], self.step)
            )
            poison_if_failed(flat, bucket.across)
            return
        # All pieces are summed inside first: later sums overlap with the exchange across.
        flat.div_(inside.size)
        begun = [_begin_sum_inside(flat, piece, inside) for piece in bucket.pieces]
        ended = []
        for (full, shard, work), state in zip(begun, bucket.states, strict=True):
            work.wait()
            self.traffic.add_across(codec.exchange(shard, bucket.across, state, self.step))
            poison_if_failed(shard, bucket.across)
            ended.append(inside.begin_all_gather(full, shard))
            self.traffic.inside += ring_bytes(full.numel() * full.element_size(), inside.size)
        for piece, (full, _, _), work in zip(bucket.pieces, begun, ended, strict=True):
            work.wait()
            if piece.padding:
                flat[piece.begin : piece.begin + piece.length] = full[: piece.length]


_working: "weakref.WeakSet[CommWorker]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Wait for exchanges: the interpreter aborts at exit if a thread is in one's C++ code."""
    end = time.monotonic() + (FAILED_EXIT_S if hasattr(sys, "last_value") else EXIT_S)
    for thread in [worker._stop_thread() for worker in list(_working)]:
        if thread is not None:
            thread.join(max(0.0, end - time.monotonic()))


def _begin_sum_inside(
    flat: torch.Tensor, piece: BucketPiece, inside: Communicator
) -> tuple[torch.Tensor, torch.Tensor, Work]:
    """Start to sum a piece over the ranks of a row.

    Returns the piece (a copy if it is padded), this rank's shard of the sum, and the exchange to
    wait for.
    """
    full = flat[piece.begin : piece.begin + piece.length]
    if piece.padding:
        full = torch.nn.functional.pad(full, (0, piece.padding))
    return full, *inside.begin_reduce_scatter(full)
