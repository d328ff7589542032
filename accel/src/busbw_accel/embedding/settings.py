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
    """The settings of a table."""

    # most rows; None: until memory is full, or as gpu_bytes and host_bytes hold
    capacity: int | None = None
    initial: int = 1 << 12  # rows that are allocated at first
    # GPU memory for rows with their states, allocated at once; None: no limit, and no rows in host
    # memory. Further rows are in pinned host memory. A lookup brings its rows to the GPU, and rows
    # with the lowest scores make room (with eviction "none": those not looked up for the longest
    # time). Only for tables on GPUs that Triton compiles for. The index stays on the GPU: 44 to 76
    # bytes per row.
    gpu_bytes: int | None = None
    # host memory for the rows of each rank, allocated and pinned as the table grows; `initial` rows
    # at once
    host_bytes: int = 0
    # "uniform" in [-init_scale, init_scale), "normal" with this deviation, or "zeros"
    init: str = "uniform"
    init_scale: float = 0.05
    seed: int = 0  # initial values depend on the seed, the id and the column alone
    # "sgd", "adam", "rowwise_adam", "rowwise_adagrad" (one second moment a row)
    optimizer: str = "adam"
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)  # decay of the first and second moment
    eps: float = 1e-8
    weight_decay: float = 0.0  # decoupled (as in AdamW), only for the rows of an update
    # which rows make room in a full table: "lfu": those with the fewest lookups; "lru": those not
    # looked up for the longest time; "none": none, and new ids are refused
    eviction: str = "none"
    # the lookup of an id in training at which it gets a row; embedding/index.py has the memory that
    # counts lookups
    admission: int = 1
    # sum the gradients of repeated ids in their order, which needs a sort per lookup on GPUs
    deterministic: bool = False
    strict: bool = False  # raise where ids are refused or gradients not finite; else count both

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
