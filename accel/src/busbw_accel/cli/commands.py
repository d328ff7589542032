"""Rows of busbw's table of commands: training."""

from busbw.cli.commands import TRAIN, Row

PACKAGE = __name__.rpartition(".")[0]
ROWS = (
    Row(
        "train",
        TRAIN,
        "Train a model on synthetic samples, alone and with each method of gradient exchange.",
        package=PACKAGE,
    ),
    Row(
        "plan",
        TRAIN,
        "Recommend the gradient exchange that hides the network and loses least.",
        package=PACKAGE,
    ),
    Row(
        "horovodrun",
        TRAIN,
        "Start a Horovod script on several ranks, like horovodrun.",
        tables=False,
        package=PACKAGE,
    ),
)
