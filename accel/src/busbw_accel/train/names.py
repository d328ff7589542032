"""The names of models. busbw_accel.train.models builds them and needs torch."""

from busbw.core.errors import UsageError

GPT = "gpt"
NAMES: dict[str, str] = {
    "vgg16": "torchvision's, 138 million parameters, 103 million of them in one layer",
    "resnet50": "torchvision's, 26 million parameters",
    "gpt2": "a transformer of GPT-2's size: 12 layers of 768, 124 million parameters",
    "gpt-small": "a transformer of 4 layers of 256, 4 million parameters",
    GPT: "a transformer of any size, by --params: compares ways to keep its states",
    "mlp": "three layers of 4096, 25 million parameters",
    "mlp-small": "three layers of 512, 1.3 million parameters",
}


def require_model(name: str) -> str:
    """`name`, if it is a model. Raises UsageError otherwise."""
    if name not in NAMES:
        raise UsageError(f"unknown model '{name}'", f"use one of {', '.join(NAMES)}")
    return name
