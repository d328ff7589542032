"""Rows of busbw's table of commands: training."""

from busbw.cli.commands import TRAIN, CommandRow

PACKAGE = __name__.rpartition(".")[0]
ROWS = (
    CommandRow(
        "train",
        TRAIN,
        "Train a model on synthetic samples, alone and with each method of gradient exchange.",
        package=PACKAGE,
    ),
    CommandRow(
        "plan",
        TRAIN,
        "Recommend the gradient exchange that hides the network and loses least.",
        package=PACKAGE,
    ),
    CommandRow(
        "horovodrun",
        TRAIN,
        "Start a Horovod script on several ranks, like horovodrun.",
        tables=False,
        package=PACKAGE,
    ),
)
