"""The settings of a table: its size, the initial values of rows, the optimizer, and which ids
have rows.
"""

from dataclasses import dataclass

from busbw.core.errors import UsageError

INITS = ("uniform", "normal", "zeros")
OPTIMIZERS = ("sgd", "adam", "rowwise_adam", "rowwise_adagrad")
EVICTIONS = ("none", "lfu", "lru")
MAX_ROWS = 1 << 30  # rows and slots of the index have 32-bit numbers


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The settings of a table.

    Attributes:
        capacity: the maximum number of rows; None: until memory is full, or as many as gpu_bytes
            and host_bytes hold.
        initial: rows that are allocated at first.
        gpu_bytes: GPU memory for rows with their states, allocated at once; None: no limit, and no
            rows in host memory. Further rows are in pinned host memory. A lookup brings its rows to
            the GPU, and rows with the lowest scores make room (with eviction "none": those not
            looked up for the longest time). Only for tables on GPUs that Triton compiles for. The
            index stays on the GPU: 44 to 76 bytes per row.
        host_bytes: host memory for the rows of each rank. It is allocated and pinned as the table
            grows; `initial` rows at once.
        init: initial values: "uniform" in [-init_scale, init_scale), "normal" with this standard
            deviation, or "zeros".
        seed: initial values depend on the seed, the id and the column alone.
        optimizer: "sgd", "adam", "rowwise_adam" or "rowwise_adagrad" (one second moment per row).
        betas: decay of the first and second moment.
        weight_decay: decoupled (as in AdamW), and applied only to the rows of an update.
        eviction: which rows make room in a full table: "lfu": those with the fewest lookups;
            "lru": those not looked up for the longest time; "none": none, and new ids are refused.
        admission: the lookup of an id in training at which it gets a row. See embedding/index.py
            for the memory that counts lookups.
        deterministic: sum the gradients of repeated ids in the order of the ids, which needs a sort
            per lookup on GPUs.
        strict: raise an error where ids are refused or gradients are not finite. Otherwise both are
            counted.
    """

    capacity: int | None = None
    initial: int = 1 << 12
    gpu_bytes: int | None = None
    host_bytes: int = 0
    init: str = "uniform"
    init_scale: float = 0.05
    seed: int = 0
    optimizer: str = "adam"
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    eviction: str = "none"
    admission: int = 1
    deterministic: bool = False
    strict: bool = False

    def __post_init__(self) -> None:
        for name, choices in {
            "init": INITS,
            "optimizer": OPTIMIZERS,
            "eviction": EVICTIONS,
        }.items():
            value = getattr(self, name)
            if value not in choices:
                raise UsageError(f"{name} is '{value}'", f"{name} is one of {', '.join(choices)}")
        for name, value, least in (
            ("capacity", self.capacity, 1),
            ("initial", self.initial, 1),
            ("admission", self.admission, 1),
        ):
            if value is not None and not least <= value <= MAX_ROWS:
                raise UsageError(f"{name} is {value}", f"{name} is from {least} to {MAX_ROWS}")
        for name in ("init_scale", "lr", "eps", "weight_decay"):
            if not 0 <= getattr(self, name) < float("inf"):  # also true for nan
                raise UsageError(
                    f"{name} is {getattr(self, name)}", f"{name} is a finite number of at least 0"
                )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UsageError(f"betas are {self.betas}", "each beta is at least 0 and below 1")
        self._check_memory()
        if self.eviction != "none" and self.capacity is None and self.gpu_bytes is None:
            raise UsageError(
                f"eviction '{self.eviction}' without a capacity",
                "give capacity, the rows from which on others are evicted",
            )

    def _check_memory(self) -> None:
        for name, value, least in (
            ("gpu_bytes", self.gpu_bytes, 1),
            ("host_bytes", self.host_bytes, 0),
        ):
            if value is not None and value < least:
                raise UsageError(f"{name} is {value}", f"{name} is at least {least}")
        if self.host_bytes and self.gpu_bytes is None:
            raise UsageError(
                f"host_bytes is {self.host_bytes} without gpu_bytes",
                "give gpu_bytes, beyond which rows are in host memory",
            )
