"""Rows of busbw's table of commands: training."""

from busbw.cli.table.row import TRAIN, Row

PACKAGE = __name__.rpartition(".")[0]
ROWS = (
    Row(
        "train",
        TRAIN,
        "Train a model on synthetic samples, alone and with each method of gradient exchange.",
        (
            (
                "plain DDP and two methods in turn",
                "busbw train vgg16 --compare none,torch-powersgd,int8",
            ),
            (
                "two hosts of one GPU",
                "busbw train gpt2 --batch-size 8 --precision bf16 --hosts h1:1,h2:1",
            ),
            ("a model larger than the GPU", "busbw train gpt --params 8B --batch-size 8 --offload"),
        ),
        package=PACKAGE,
    ),
    Row(
        "plan",
        TRAIN,
        "Recommend the gradient exchange that hides the network and loses least.",
        (
            (
                "your own training: 30 steps are recorded",
                "busbw plan -- torchrun --nproc-per-node 2 train.py",
            ),
            ("a recorded training, on other hosts", "busbw plan --pattern run1 --hosts h1:1,h2:1"),
            ("a model of busbw's", "busbw plan vgg16 --batch-size 128 --hosts h1:1,h2:1"),
            (
                "only these methods, and 90 % of a rank's own rate",
                "busbw plan gpt2 --compare none,int8,2d+int8 --target 90%",
            ),
            (
                "whether a model fits, and where to keep its states",
                "busbw plan gpt --params 13B --batch-size 8 --memory",
            ),
        ),
        package=PACKAGE,
    ),
    Row(
        "horovodrun",
        TRAIN,
        "Start a Horovod script on several ranks, like horovodrun.",
        (
            ("four ranks on this machine", "busbw horovodrun -np 4 python train.py --epochs 10"),
            ("two hosts", "busbw horovodrun -np 16 -H h1:8,h2:8 python train.py"),
            ("hosts of a file", "busbw horovodrun -np 16 --hostfile hosts.txt python train.py"),
        ),
        tables=False,
        package=PACKAGE,
    ),
)
