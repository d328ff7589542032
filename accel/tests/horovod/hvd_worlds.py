"""What process sets, starts, ends, faults and elastic restarts have to do, as contracts that
every rank runs.
"""

import json
import os
import time
from functools import partial
from pathlib import Path

import torch
import trace_events
from hvd_contracts import fails, rank_tensor, total
from hvd_trainings import distributed
from torch import nn

import busbw_accel.horovod.torch as hvd


def process_sets_have_their_own_ranks():
    hvd.shutdown()
    first, others = hvd.ProcessSet([0]), hvd.ProcessSet(list(range(1, hvd_size())))
    assert first.process_set_id is None
    with fails("not been initialized", ValueError):
        first.included()
    hvd.init(process_sets=[first, others])
    own_set = first if hvd.rank() == 0 else others
    other_set = others if own_set is first else first
    assert (
        own_set.included()
        and not other_set.included()
        and other_set.size() == hvd.size() - own_set.size()
    )
    assert own_set.rank() == max(0, hvd.rank() - 1)
    with fails("is not one of the process set", ValueError):
        other_set.rank()
    with fails("is not in ProcessSet", ValueError):
        hvd.allreduce(rank_tensor(1), process_set=other_set)
    for name in ("of a set", "of a set", None):
        result = hvd.allreduce(rank_tensor(2), name=name, op=hvd.Sum, process_set=own_set)
        assert (result == (1 if own_set is first else total() - 1)).all()
    root = own_set.ranks[-1]
    assert (hvd.broadcast(rank_tensor(2), root, process_set=own_set) == root + 1).all(), (
        "the root is a rank among all"
    )
    assert hvd.allgather(rank_tensor(1), process_set=own_set).tolist() == [
        rank + 1 for rank in own_set.ranks
    ]
    assert len(hvd.reducescatter(rank_tensor(2 * own_set.size()), process_set=own_set)) == 2
    hvd.barrier(own_set)
    with fails("cannot be added now", ValueError):
        hvd.add_process_set([0])
    with fails("cannot be removed now", ValueError):
        hvd.remove_process_set(first)


def hvd_size():
    return int(os.environ["HOROVOD_SIZE"])


def process_sets_come_and_go():
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    added = hvd.add_process_set([1, 0])
    again = hvd.add_process_set(hvd.ProcessSet([0, 1]))
    assert added.ranks == [0, 1] and added.process_set_id == again.process_set_id > 0
    for _ in range(3):
        if added.included():
            assert (
                hvd.allreduce(rank_tensor(1), name="added", op=hvd.Sum, process_set=added) == 3
            ).all()
        assert (hvd.allreduce(rank_tensor(1), name="added", op=hvd.Sum) == total()).all()
    assert (
        hvd.remove_process_set(again)
        and added.process_set_id is None
        and not hvd.remove_process_set(added)
    )
    with fails("is not registered", ValueError):
        hvd.allreduce(rank_tensor(1), process_set=added)
    assert not hvd.remove_process_set(hvd.global_process_set)
    for ranks in ([0, hvd.size()], [0, 0], []):
        with fails("a process set of ranks", ValueError):
            hvd.add_process_set(ranks)
    with fails("ranks disagree on the ranks of the process set"):
        hvd.add_process_set([0] if hvd.rank() == 0 else [1])
    assert hvd.add_process_set([1]).process_set_id > 1
    assert hvd.add_process_set(added) is added and added.size() == 2, "after its removal"


def timelines_are_chrome_traces():
    path = Path(os.environ["HVD_FOLDER"]) / "trace.json"
    hvd.start_timeline(str(path), mark_cycles=True)
    for _ in range(3):
        hvd.allreduce(rank_tensor(3), name="traced")
    hvd.stop_timeline()
    if hvd.rank() == 0:
        assert path.stat().st_mode & 0o777 == 0o600
        events = json.loads(path.read_text())
        assert not trace_events.find_violations(events)
        (process,) = [
            event["pid"] for event in events if event.get("args") == {"name": "allreduce.traced"}
        ]
        names = [
            event["name"] for event in events if event["pid"] == process and event["ph"] == "X"
        ]
        assert names == ["NEGOTIATE_ALLREDUCE", "ALLREDUCE", "GLOO_ALLREDUCE"] * 3
        assert next(event["args"] for event in events if event["name"] == "ALLREDUCE") == {
            "dtype": ["float32"],
            "shape": [[3]],
        }
        assert any(event["name"] == "CYCLE_START" for event in events)


def init_works_again_and_again():
    for _ in range(30):
        hvd.shutdown()
        assert not hvd.is_initialized()
        hvd.init()
        handle = hvd.allreduce_async(rank_tensor(2), op=hvd.Sum)
        assert handle == 0, "numbers begin anew"
        assert (hvd.synchronize(handle) == total()).all()


def calls_after_shutdown_fail():
    hvd.shutdown()
    hvd.shutdown()
    for call in (hvd.rank, hvd.size, lambda: hvd.allreduce(torch.ones(1)), hvd.join, hvd.barrier):
        with fails("has not been initialized", ValueError):
            call()


def a_shutdown_ends_operations_in_flight():
    if hvd.rank() == 0:
        with fails("shut down"):
            hvd.allreduce(torch.ones(1), name="alone")
        with fails("shut down"):
            hvd.allreduce(torch.ones(1))
    hvd.shutdown()


def long_waits_are_reported_and_fail():
    flag = Path(os.environ["HVD_FOLDER"]) / "told"
    if hvd.rank() == 0:
        with fails("some ranks did not request it within 1.5 s"):
            hvd.allreduce(torch.ones(1), name="forgotten")
        flag.touch()
    while not flag.exists():
        time.sleep(0.01)
    assert (hvd.allreduce(rank_tensor(1), name="later", op=hvd.Sum) == total()).all()


def builds_are_reported():
    assert hvd.gloo_built() and hvd.gloo_enabled() and not hvd.mpi_built() and not hvd.mpi_enabled()
    assert (
        not hvd.mpi_threads_supported()
        and not hvd.ddl_built()
        and not hvd.ccl_built()
        and not hvd.rocm_built()
    )
    assert isinstance(hvd.cuda_built(), bool) and hvd.nccl_built() in (0, hvd.nccl_built())


def gloo_uses_the_network_that_horovodrun_was_given():
    assert os.environ["BUSBW_IFNAME"] == "127.0.0.0/8" and os.environ["GLOO_SOCKET_IFNAME"] == "lo"


def an_elastic_training_continues():
    model = nn.Linear(2, 1)
    state = hvd.elastic.TorchState(
        model=model,
        optimizer=distributed(model),
        batch=hvd.rank(),
        best=None,
        sampler=hvd.elastic.ElasticSampler(range(20)),
    )
    starts, resets = [], []
    state.register_reset_callbacks([lambda: resets.append(1)])

    @hvd.elastic.run
    def train(state):
        starts.append((state.batch, state.best))
        while state.batch < 4:
            state.batch += 1
            state.best = state.batch
            state.sampler.record_batch(0, 2)
            if state.batch == 3 and not resets:
                with torch.no_grad():
                    model.weight.fill_(99)
                assert state.best == 3
                hvd.allreduce(torch.ones(2 + hvd.rank()), name="wrong")
            state.commit()
        return state.batch

    assert train(state) == 4
    assert starts == [(0, None), (2, 2)] and len(resets) == 1 and not (model.weight == 99).any()
    assert state.sampler.processed_num == 4 * 2 * hvd.size()
    left = hvd.allgather_object(list(state.sampler))
    assert all(len(indices) * hvd.size() == state.sampler.total_size for indices in left)
    assert set().union(*left) == set(state.sampler.remaining_indices)
    state.sampler.set_epoch(1)
    assert len(state.sampler.remaining_indices) == 20


def a_rank_that_notices_a_failure_after_others_left_continues():
    starts = []

    @hvd.elastic.run
    def train(state):
        starts.append(hvd.rank())
        if len(starts) == 1:
            try:
                hvd.allreduce(torch.ones(2 + hvd.rank()), name="wrong")
            except hvd.HorovodInternalError:
                if hvd.rank() > 0:
                    with fails("shut down"):
                        hvd.allreduce(torch.ones(1), name="after rank 0 left")
                raise
        return hvd.allreduce(rank_tensor(1), name="again", op=hvd.Sum)

    assert (
        train(hvd.elastic.ObjectState(partial(hvd.broadcast_object, root_rank=0), hvd.rank))
        == total()
    ).all()
    assert starts == [hvd.rank()] * 2


class CountedState(hvd.elastic.State):
    def __init__(self, step):
        super().__init__(hvd.broadcast_object, hvd.rank)
        self.step, self.calls = step, []

    def save(self):
        self.kept = self.step

    def restore(self):
        self.step = self.kept

    def sync(self):
        self.step = self._bcast_object(self.step)
        self.save()

    def reset(self):
        self.calls.append("reset")


def an_elastic_training_continues_with_states_of_other_kinds():
    def join_again():
        hvd.shutdown()
        hvd.init()
        joined.append(hvd.rank())

    def train(state):
        starts.append(state.step)
        while state.step < 3:
            state.step += 1
            if state.step == 2 and len(starts) == 1:
                hvd.allreduce(torch.ones(2 + hvd.rank()), name="wrong")
            state.commit()
        return state.step

    own = CountedState(hvd.rank())
    own.register_reset_callbacks([lambda: own.calls.append("callback")])
    for state in (
        own,
        hvd.elastic.ObjectState(
            partial(hvd.broadcast_object, root_rank=0), hvd.rank, step=hvd.rank()
        ),
    ):
        starts, joined = [], []
        assert hvd.elastic.run_fn(train, join_again)(state) == 3
        assert starts == [0, 1] and joined == [hvd.rank()], "rank 0's state, then the last commit"
    assert own.calls == ["reset", "callback"]


def a_restarted_process_reads_its_commit():
    os.environ |= {"TORCHELASTIC_RUN_ID": "x", "BUSBW_ELASTIC_DIR": os.environ["HVD_FOLDER"]}
    state = hvd.elastic.TorchState(model=nn.Linear(2, 1), step=0)
    state.step = 5
    state.commit()
    hvd.barrier()
    fresh = hvd.elastic.TorchState(model=nn.Linear(2, 1), step=0)
    step = hvd.elastic.run(lambda state: state.step)(fresh)
    hvd.barrier()
    assert not state.path().exists(), "the next run with this id begins anew"
    del os.environ["TORCHELASTIC_RUN_ID"]
    assert step == 5 and torch.equal(
        fresh.model.weight, hvd.broadcast(state.model.weight.detach(), 0)
    )


def a_lost_rank_fails_operations():
    hvd.allreduce(rank_tensor(2), name="all are there")
    if hvd.rank() == 1:
        os._exit(7)
    output = []
    for _ in range(2):
        try:
            hvd.allreduce(rank_tensor(2), name="one is lost")
        except hvd.HorovodInternalError as error:
            output.append(str(error))
    hvd.shutdown()
    return output
