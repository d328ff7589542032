"""What gradients, optimizers and their states have to do, as contracts that every rank runs."""

import gc
import warnings
import weakref

import pytest
import torch
from hvd_contracts import fails, rank_tensor, total
from torch import nn

import busbw_accel.horovod.torch as hvd
from busbw_accel.horovod.torch import context


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def batches(steps=8):
    """Inputs and labels of all ranks; a rank's own are its rows."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(steps):
        inputs = torch.randn(4 * hvd.size(), 6, generator=generator)
        yield inputs, inputs[:, :3].argmax(1)


def own_part(tensor):
    return tensor[hvd.rank() * 4 : hvd.rank() * 4 + 4]


def trained(optimizer, model, passes=1):
    for inputs, labels in batches():
        optimizer.zero_grad()
        for part in range(passes):
            rows = slice(part * 4 // passes, (part + 1) * 4 // passes)
            (
                nn.functional.cross_entropy(model(own_part(inputs)[rows]), own_part(labels)[rows])
                / passes
            ).backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def alone():
    """The same training with all batches in one process."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for inputs, labels in batches():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def distributed(model, **words):
    return hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters(), **words
    )


def gradients_of_allreduce():
    tensor = torch.ones(3, requires_grad=True)
    hvd.allreduce(tensor, op=hvd.Sum).backward(rank_tensor(3))
    assert (tensor.grad == total()).all()
    several = [torch.ones(2, requires_grad=True) for _ in range(2)]
    torch.cat(hvd.grouped_allreduce(several)).backward(torch.ones(4))
    assert all((tensor.grad == 1).all() for tensor in several)


def gradients_of_allgather_are_averaged():
    tensor = torch.ones(hvd.rank() + 1, 2, requires_grad=True)
    gathered = hvd.allgather(tensor)
    gathered.backward(torch.arange(len(gathered), dtype=torch.float32).unsqueeze(1).expand(-1, 2))
    begin = sum(range(1, hvd.rank() + 1))
    assert tensor.grad[:, 0].tolist() == list(range(begin, begin + hvd.rank() + 1))
    several = [torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)]
    torch.cat(hvd.grouped_allgather(several)).sum().backward()
    assert all((tensor.grad == 1).all() for tensor in several)


def gradients_of_broadcast_are_at_the_root():
    tensor = torch.ones(2, requires_grad=True)
    hvd.broadcast(tensor, 1).backward(rank_tensor(2))
    assert torch.allclose(
        tensor.grad, torch.full((2,), total() / hvd.size() if hvd.rank() == 1 else 0.0)
    )


def gradients_of_alltoall_come_back():
    size = hvd.size()
    tensor = torch.ones(size + 1, requires_grad=True)
    received, _ = hvd.alltoall(tensor, splits=[1] * size)
    received.backward(rank_tensor(size))
    assert tensor.grad.tolist() == [*range(1, size + 1), 0]
    even = torch.ones(size, requires_grad=True)
    hvd.alltoall(even).backward(rank_tensor(size))
    assert even.grad.tolist() == list(range(1, size + 1))


def gradients_of_reducescatter():
    size = hvd.size()
    for op, factor in ((hvd.Sum, size), (hvd.Average, 1)):
        tensor = torch.ones(size, 2, requires_grad=True)
        hvd.reducescatter(tensor, op=op, prescale_factor=2.0).backward(rank_tensor(1, 2))
        assert tensor.grad[:, 0].tolist() == [2 * factor * value for value in range(1, size + 1)]
    several = [torch.ones(size, requires_grad=True) for _ in range(2)]
    torch.cat(hvd.grouped_reducescatter(several)).sum().backward()
    assert all((tensor.grad == 1).all() for tensor in several)


def a_distributed_training_equals_one_process():
    expected = alone()
    for words in (
        {},
        {"groups": 2},
        {"num_groups": 3},
        {"gradient_predivide_factor": 2.0},
        {"backward_passes_per_step": 2},
    ):
        model = net()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            optimizer = distributed(model, **words)
        weights = trained(optimizer, model, words.get("backward_passes_per_step", 1))
        assert torch.allclose(weights, expected, atol=1e-5), words
    model = net()
    groups = [list(model[0].parameters()), [model[2].weight]]
    assert torch.allclose(trained(distributed(model, groups=groups), model), expected, atol=1e-5)
    model = net()
    assert torch.allclose(
        trained(distributed(model, compression=hvd.Compression.fp16), model), expected, atol=1e-2
    )


def a_distributed_optimizer_is_of_its_own_class():
    model = net()
    optimizer = distributed(model)
    assert isinstance(optimizer, torch.optim.SGD) and type(optimizer).__name__ == "SGD"
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    trained(optimizer, model)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05
    optimizer.load_state_dict(optimizer.state_dict())


def an_optimizer_that_is_dropped_keeps_no_weights():
    model = net()
    optimizer = distributed(model)
    trained(optimizer, model)
    weights = [weakref.ref(parameter) for parameter in model.parameters()]
    del model, optimizer
    gc.collect()
    assert [reference for reference in weights if reference() is not None] == []


def steps_are_guarded():
    model = net()
    optimizer = distributed(model)
    model(torch.ones(2, 6)).sum().backward()
    with fails("prohibited", AssertionError):
        optimizer.zero_grad()
    with fails("more than backward_passes_per_step", AssertionError):
        model(torch.ones(2, 6)).sum().backward()
    optimizer.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with optimizer.skip_synchronize():
            optimizer.step()
    optimizer.zero_grad()
    model(torch.ones(2, 6)).sum().backward()
    optimizer.synchronize()
    with pytest.warns(UserWarning, match="called without optimizer.skip_synchronize"):
        optimizer.step()
    optimizer.set_backward_passes_per_step(2)
    optimizer.zero_grad()
    for _ in range(2):
        model(torch.ones(2, 6)).sum().backward()
    optimizer.step()


def arguments_of_the_optimizer_are_checked():
    model = net()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    named_parameters = list(model.named_parameters())
    for words, arguments in {
        "sequence of tuples": {"named_parameters": model.parameters()},
        "not unique: 0.weight": {"named_parameters": [*named_parameters, named_parameters[0]]},
        "3 of the optimizer's 4": {"named_parameters": named_parameters[:1]},
        "requires op=Average": {"op": hvd.Sum, "gradient_predivide_factor": 2.0},
        "backward_passes_per_step is 0": {"backward_passes_per_step": 0},
        "groups is -1": {"groups": -1},
        "not tensors": {"groups": [["a"]]},
        "in groups twice": {"groups": [[named_parameters[0][1]], [named_parameters[0][1]]]},
    }.items():
        with fails(words, ValueError):
            hvd.DistributedOptimizer(sgd, **arguments)


def parameters_without_gradient_count_as_zeros():
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([first, second], lr=1.0), [("first", first), ("second", second)]
    )
    (first if hvd.rank() == 0 else second).sum().backward()
    optimizer.step()
    assert torch.allclose(first.data, torch.full((2,), 1 - 1 / hvd.size()))
    assert torch.allclose(second.data, torch.full((2,), 1 / hvd.size()))


def sparse_gradients_are_reduced():
    for dense in (False, True):
        table = nn.Embedding(6, 2, sparse=True, _weight=torch.zeros(6, 2))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(table.parameters(), lr=1.0),
            table.named_parameters(),
            sparse_as_dense=dense,
        )
        assert not table.weight.grad.any(), "there is one at once"
        optimizer.zero_grad()
        table(torch.tensor([0, hvd.rank() + 1])).sum().backward()
        optimizer.step()
        assert torch.allclose(table.weight.data[0], -torch.ones(2)) and table.weight.grad.is_sparse
        assert torch.allclose(table.weight.data[hvd.size()], torch.full((2,), -1 / hvd.size()))


def parameters_and_states_are_broadcast():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(hvd.rank())
    hvd.broadcast_parameters(model.state_dict(), root_rank=1)
    hvd.broadcast_parameters(model.named_parameters(), root_rank=1)
    assert all((parameter == 1).all() for parameter in model.parameters())
    with fails("broadcast_parameters of a int", ValueError):
        hvd.broadcast_parameters(3, 0)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=0.1 + hvd.rank(), betas=(0.5 + 0.1 * hvd.rank(), 0.9)
    )
    if hvd.rank() == 1:  # the others have no state yet
        model(torch.randn(4, 3)).sum().backward()
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=1)
    group = optimizer.param_groups[0]
    assert group["lr"] == 1.1 and group["betas"] == (0.6, 0.9)
    moments = torch.cat(
        [state["exp_avg"].flatten() for state in optimizer.state_dict()["state"].values()]
    )
    assert (hvd.allgather(moments.unsqueeze(0)) == moments).all() and len(moments) == 18
    with fails("LBFGS", ValueError):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(model.parameters()), 0)


def batch_norm_is_over_all_ranks():
    generator = torch.Generator().manual_seed(3)
    inputs, weights = (
        torch.randn(4 * hvd.size(), 5, 2, generator=generator),
        torch.randn(4 * hvd.size(), 5, 2, generator=generator),
    )
    reference, synchronized = nn.BatchNorm1d(5), hvd.SyncBatchNorm(5)
    all_inputs, own_inputs = (
        inputs.clone().requires_grad_(),
        own_part(inputs).clone().requires_grad_(),
    )
    expected, result = reference(all_inputs), synchronized(own_inputs)
    (expected * weights).sum().backward()
    (result * own_part(weights)).sum().backward()
    assert torch.allclose(result, own_part(expected), atol=1e-5)
    assert torch.allclose(own_inputs.grad, own_part(all_inputs.grad), atol=1e-5)
    assert torch.allclose(
        hvd.allreduce(synchronized.weight.grad, op=hvd.Sum), reference.weight.grad, atol=1e-4
    )
    assert torch.allclose(synchronized.running_var, reference.running_var, atol=1e-5)
    assert torch.allclose(synchronized.running_mean, reference.running_mean, atol=1e-5)
    assert torch.allclose(
        synchronized.eval()(own_inputs), reference.eval()(own_part(inputs)), atol=1e-5
    )


def light_variables_choose_the_exchange_of_gradients():
    model = net()
    optimizer = distributed(model)
    start = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    end = trained(optimizer, model)
    worker = context.current().worker
    assert (hvd.allgather(end.unsqueeze(0)) == end).all(), "replicas are the same bits"
    assert worker.traffic.buckets == 8 * 4 and worker.step == 8
    assert not torch.equal(start, end)
    assert (hvd.allreduce(rank_tensor(3), op=hvd.Sum) == total()).all(), (
        "other operations are as ever"
    )
    return [worker.mesh.two_d, worker.settings.describe(), float((end - alone()).abs().max())]
