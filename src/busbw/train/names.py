"""The table of models by name; what they are made of is in busbw.train.models, which needs torch."""

from busbw.core.errors import UsageError

NAMES: dict[str, str] = {
    "vgg16": "torchvision's, 138 million parameters, 103 million of them in one layer",
    "resnet50": "torchvision's, 26 million parameters",
    "gpt2": "a transformer of GPT-2's size: 12 layers of 768, 124 million parameters",
    "gpt-small": "a transformer of 4 layers of 256, 4 million parameters",
    "mlp": "three layers of 4096, 25 million parameters",
    "mlp-small": "three layers of 512, 1.3 million parameters",
}


def known(name: str) -> str:
    """The name.

    Raises:
        UsageError: it is no model's.
    """
    if name not in NAMES:
        raise UsageError(f"there is no model '{name}' to train", f"use one of {', '.join(NAMES)}")
    return name
