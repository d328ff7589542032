"""Values that a shell completes, by the names of parameters of `train` and `plan`."""

from busbw.cli.completion import Words, keys, with_words

_METHODS = Words(
    with_words(
        keys("busbw_accel.train.methods", "WORDS"),
        "torch-bf16",
        "torch-fp16",
        "torch-powersgd",
        "torchft-diloco",
    ),
    separated=True,
)
BY_PARAMETER: dict[str, Words] = {
    "model_name": Words(keys("busbw_accel.train.names", "NAMES")),
    "accel": _METHODS,
    "compare": _METHODS,
    "transports": Words(keys("busbw_accel.train.plan_rounds", "BY_NAME"), separated=True),
}
