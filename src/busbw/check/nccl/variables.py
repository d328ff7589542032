"""Names and values of variables, and variables for debugging.

NAMES are those that NCCL reads: the names in the libraries of NCCL 2.14.3, 2.18.3, 2.21.5, 2.24.3,
2.27.7, 2.30.7 and 2.32.3, and in its user guide, which also has older ones. Those that NCCL lost
before 2.14, as NCCL_TREE_THRESHOLD, are not among them.
"""

from collections.abc import Iterator
from difflib import get_close_matches

from busbw.check.base import ENVIRONMENT, check, judged, not_offered, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.plugins import plugin_with
from busbw.check.nccl.settings import REMOVE_VARIABLE, VARIABLE_SOURCES, Setting, settings, variable
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import parse_int

_NAMES = """
AGG_CHANNEL_SIZE ALGO ALLGATHERV_ENABLE ALLOC_P2P_NET_LL_BUFFERS BUFFSIZE
CE_COLL_AG_MULTICAST_THRESHOLD CE_INTRA_GPU_MEMCPY_ENABLE CFT_ENABLE CFT_MULTIMEM CGA_CLUSTER_SIZE
CHECKS_DISABLE CHECK_MODE CHECK_POINTERS CHUNK_SIZE COLLNET_ENABLE COLLNET_NODE_THRESHOLD
COMM_BLOCKING COMM_ID COMM_SHRINK_SHARE_RESOURCES COMM_SPLIT_SHARE_RESOURCES CONF_FILE
CONNECT_ROUND_MAX_PEERS CROSS_NIC CTA_POLICY CUDA_PATH CUMEM_ENABLE CUMEM_HOST_ENABLE DEBUG
DEBUG_FILE DEBUG_LEVELS DEBUG_SUBSYS DEBUG_TIMESTAMP_FORMAT DEBUG_TIMESTAMP_LEVELS DEV_API_JIT
DIAGNOSTICS_ECC_THRESHOLD DIAGNOSTICS_IB_BW_TIMEOUT DISABLE_MEM_MANAGER DMABUF_ENABLE
ELASTIC_BUFFER_REGISTER ENABLE_VERSION_CHECK ENQUEUE_REARCH_ENABLE ENV_PLUGIN GDAKI_FORCE_MCST
GDAKI_USE_RELIABLE_DB GDRCOPY_ENABLE GDRCOPY_FIFO_ENABLE GDRCOPY_FLUSH_ENABLE GDRCOPY_SYNC_ENABLE
GDRCOPY_USE_INTERNAL_DMABUF GDR_FLUSH_DISABLE GIN_ENABLE GIN_ERROR_QUERY_SEC
GIN_GDAKI_LAG_AWARE_DISABLE GIN_GDAKI_MAX_DEST_RD_ATOMIC GIN_GDAKI_MAX_QP_RD_ATOMIC
GIN_GDAKI_NIC_HANDLER GIN_GDAKI_QP_DEPTH GIN_IB_OOO_OPT GIN_IB_TC GIN_NCONNECTIONS GIN_PLUGIN
GIN_PLUGIN_REF_COUNT GIN_PROXY_NTHREADS GIN_PROXY_POLL_BATCH GIN_PROXY_QUEUE_SIZE GIN_TYPE
GRAPH_DUMP_FILE GRAPH_DUMP_FILE_RANK GRAPH_FILE GRAPH_HELPER_DISABLE GRAPH_MIXING_SUPPORT
GRAPH_REGISTER GRAPH_STREAM_ORDERING GROUP_CUDA_STREAM HIER_CE_COLL_AG_RAIL_RING_ENABLE
HIER_CE_COLL_NUM_CTX HOSTID IBVERBS_LIB IB_ADAPTIVE_ROUTING IB_ADDR_FAMILY IB_ADDR_RANGE
IB_AR_THRESHOLD IB_DATA_DIRECT IB_DEVICE_PCI_ORDER IB_DISABLE IB_ECE_ENABLE
IB_EVENT_BASED_LB IB_EVENT_BASED_LB_REMOTE IB_FIFO_TC IB_GDR_LEVEL IB_GID_INDEX IB_HCA IB_MERGE_NICS
IB_MERGE_VFS IB_MQP_RETRY_ALL IB_MQP_RETRY_CNT IB_MQP_RETRY_SLEEP_MSEC IB_OOO_RQ
IB_PCI_RELAXED_ORDERING IB_PKEY IB_PKEY_VALUE IB_PREPOST_RECEIVE_WORK_REQUESTS IB_QPS_PER_CONNECTION
IB_QUERY_PORT_SPEED IB_RAIL_POLICY IB_RECEIVER_SIDE_MATCHING_SCHEME IB_RESILIENCY_PORT_FAILOVER
IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY
IB_RESILIENCY_PORT_RECOVERY IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT
IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL
IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE
IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT IB_RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX
IB_RESILIENCY_PORT_RECOVERY_START_DELAY IB_RETRY_CNT IB_RETURN_ASYNC_EVENTS IB_ROCE_VERSION_NUM
IB_ROUTABLE_FLID_GID_INDEX IB_SL IB_SORT_MERGE_NICS IB_SPLIT_DATA_ON_QPS IB_SUBNET_AWARE_ROUTING
IB_SUBNET_PREFIX_LEN IB_TC IB_TIMEOUT IB_USE_INLINE IB_VR_RAILS_PER_SOCKET IB_VR_SOCKET_COUNT
IB_WARN_RAIL_LOCAL IB_WQE_LATENCY_REPORT IB_WQE_LATENCY_THRESHOLD_NS IGNORE_COLLNET_MISMATCH
IGNORE_CPU_AFFINITY IGNORE_DISABLED_P2P IGNORE_NET_MISMATCH IPC_USE_ABSTRACT_SOCKET
L1_SHARED_MEMORY_CARVEOUT LAUNCH_MODE LAUNCH_ORDER_IMPLICIT LAUNCH_RACE_FATAL LEGACY_CUDA_REGISTER
LL128_BUFFSIZE LL128_C2C LL128_NTHREADS LL_BUFFSIZE LOCAL_REGISTER LSA_TEAM_SIZE
MAX_CTAS MAX_NCHANNELS MAX_NRINGS MAX_P2P_NCHANNELS MEM_SYNC_DOMAIN MIN_CTAS MIN_NCHANNELS
MIN_NRINGS MIN_P2P_NCHANNELS MLOPART_RDMA_ENABLE MNNVL_CLIQUE_ID MNNVL_CROSS_CLIQUE MNNVL_ENABLE
MNNVL_RAIL_PER_HOST MNNVL_SCATTER_NETS_ENABLE MNNVL_UUID MULTI_RANK_GPU_ENABLE
MULTI_SEGMENT_REGISTER NCHANNELS_PER_NET_PEER NET NETDEVS_POLICY NET_DISABLE_INTRA NET_FORCE_FLUSH
NET_FORCE_MERGE NET_GDR_C2C NET_GDR_LEVEL NET_GDR_MLOPART NET_GDR_READ NET_MERGE_LEVEL
NET_MERGE_POLICY NET_OPTIONAL_RECV_COMPLETION NET_OVERHEAD NET_PLUGIN NET_PLUGIN_REF_COUNT
NET_SHARED_BUFFERS NET_SHARED_COMMS NO_CACHE NSOCKS_PERTHREAD NTHREADS NUM_RMA_CTX NUM_RMA_INT_CTX
NVB_DISABLE NVB_PRECONNECT NVLINK_UTIL_CENTRIC_SCHED_ENABLE NVLSTREE_MAX_CHUNKSIZE NVLS_CHUNKSIZE
NVLS_ENABLE NVLS_NCHANNELS NVLS_UB_SIZE NVTX_DISABLE OOB_NET_ENABLE OOB_NET_IFNAME
P2P_DIRECT_DISABLE P2P_DISABLE P2P_EPOCH_ENABLE P2P_LEVEL P2P_LL_THRESHOLD P2P_MAX_PEERS
P2P_NET_CHUNKSIZE P2P_NVL_CHUNKSIZE P2P_PCI_CHUNKSIZE P2P_PER_CHANNEL_NET_BW
P2P_PER_CHANNEL_REG_NET_BW P2P_PXN_LEVEL P2P_READ_ENABLE P2P_SCHEDULE_GROUP_SIZE P2P_USE_CUDA_MEMCPY
PARAM_DUMP_ALL PAT_ENABLE PAT_NDIMS PROFILER_PLUGIN PROGRESS_APPENDOP_FREQ PROGRESS_COUNTERS
PROGRESS_COUNTER_MONITOR_POLL_MS PROGRESS_COUNTER_MONITOR_STALE_MS
PROGRESS_COUNTER_MONITOR_STALE_WARN_SEC PROTO PROXY_APPEND_BATCH_SIZE PROXY_CPUSET PROXY_DUMP_SIGNAL
PSK PXN_C2C PXN_DISABLE RAS_ADDR RAS_ENABLE RAS_TIMEOUT_FACTOR REPORT_CONNECT_PROGRESS RMA_DISABLE
RMA_EAGER_INIT RMA_IB_WR_BATCHSIZE RMA_MULTI_CTX_THRESHOLD RMA_PLUGIN RMA_PLUGIN_REF_COUNT
RMA_PROXY_DUMP_SIGNAL RMA_PROXY_QUEUE_SIZE RUNTIME_CONNECT RUN_DIAGNOSTICS RUN_RAS_DIAGNOSTICS
SET_CPU_STACK_SIZE SET_STACK_SIZE SET_THREAD_NAME SHADOW_MEMPOOL_MAX_SIZE SHM_DISABLE SHM_LOCALITY
SHM_MEMCPY_MODE SHM_USE_CUDA_MEMCPY SINGLE_PROC_MEM_REG_ENABLE SINGLE_RING_THRESHOLD SOCKET_FAMILY
SOCKET_IFNAME SOCKET_INLINE SOCKET_MAGIC SOCKET_MIN_TASKSIZE SOCKET_NTHREADS
SOCKET_POLL_TIMEOUT_MSEC SOCKET_RCVBUF SOCKET_RETRY_CNT SOCKET_RETRY_SLEEP_MSEC SOCKET_SNDBUF
SYM_CE_THRESHOLD SYM_CTAS SYM_GIN_KERNELS_ENABLE SYM_KERNEL SYM_NOWIN_ENABLE
SYM_REUSE_SYSMEM_HANDLES SYM_RS_GIN_CHUNK_SIZE SYM_TMA_ENABLE THREAD_THRESHOLDS TOPO_DUMP_FILE
TOPO_DUMP_FILE_RANK TOPO_FILE TOPO_SPLIT_MLOPART TUNER_PLUGIN UID_STAGGER_RATE
UID_STAGGER_THRESHOLD UNPACK_DOUBLE_NCHANNELS WARN_ENABLE_DEBUG_INFO WIN_ENABLE WIN_STRIDE
WORK_ARGS_BYTES WORK_FIFO_BYTES WORK_FIFO_DEPTH
"""
NAMES = frozenset(f"NCCL_{name}" for name in _NAMES.split())
# Names that images and builds use for library paths.
OTHERS = frozenset(
    f"NCCL_{name}"
    for name in (
        "HOME",
        "ROOT",
        "ROOT_DIR",
        "DIR",
        "PATH",
        "INCLUDE_DIR",
        "LIB_DIR",
        "LIBRARY",
        "VERSION",
    )
)
# Prefixes of variables that nccl-tests and plugins read.
PREFIXES = (
    "NCCL_TESTS_", "NCCL_INSPECTOR_", "NCCL_PROFILER_", "NCCL_TUNER_", "NCCL_SHARP_", "NCCL_IBEXT_",
    "NCCL_GPUDIRECTTCPX_", "NCCL_FASTRAK_", "NCCL_OFI_", "NCCL_SHIMNET_", "NCCL_TELEMETRY_",
    "NCCL_GPUVIZ_", "NCCL_PLUGIN_", "NCCL_UCX_",
)  # fmt: skip
DEBUG_VARIABLE, FILE_VARIABLE = "NCCL_DEBUG", "NCCL_DEBUG_FILE"
SUBSYS_VARIABLE, LAUNCH_VARIABLE = "NCCL_DEBUG_SUBSYS", "CUDA_LAUNCH_BLOCKING"
LEVELS_WITH_SUBSYS = ("INFO", "TRACE", "ABORT")
LEVELS = ("VERSION", "WARN", *LEVELS_WITH_SUBSYS)
PER_OPERATION = {"COLL", "TUNING", "CALL", "ALL"}  # subsystems with a line for each operation
STREAMS = ("/dev/stdout", "/dev/stderr")

DEBUG = CheckRow(
    id="BW182",
    name="nccl-debug",
    layer=Layer.NCCL,
    title=f"{DEBUG_VARIABLE}, {FILE_VARIABLE} and {LAUNCH_VARIABLE}",
    right="not TRACE, and no line for each operation; a file with %h and %p in its name",
    why=(
        "INFO prints how NCCL sets up each communicator. TRACE, and INFO with COLL in"
        " NCCL_DEBUG_SUBSYS, print a line for each operation, which takes time, into the job's"
        " output if there is no file for it. Processes that share a file overwrite each other's"
        f" lines. NCCL prints nothing at a level that it does not know. With {LAUNCH_VARIABLE} each"
        " launch waits for its kernel."
    ),
    fix=f"export {DEBUG_VARIABLE}=INFO",
    stays=REMOVE_VARIABLE,
    reads=VARIABLE_SOURCES,
    sources=("NCCL user guide, NCCL_DEBUG and NCCL_DEBUG_FILE",),
)
CUDA_VARIABLE = "CUDA_VISIBLE_DEVICES"
# Variables that PyTorch reads with the prefix TORCH_, and in some versions also by these names.
RENAMED = (
    "NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT",
    "NCCL_DESYNC_DEBUG",
    "NCCL_ENABLE_TIMING",
    "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
)
BLOCKING = "TORCH_NCCL_BLOCKING_WAIT"
SWITCHES = ("_DISABLE", "_ENABLE")
TRUE_WORDS = ("true", "yes", "on", "y", "t")


@variable(DEBUG, DEBUG_VARIABLE, FILE_VARIABLE, SUBSYS_VARIABLE, LAUNCH_VARIABLE)
def check_debug(machine: Machine, setting: Setting) -> Finding:
    if setting.name == LAUNCH_VARIABLE:
        if setting.value == "0":
            return passed(LAUNCH_VARIABLE, f"{setting.text} is the default", setting.evidence())
        message = f"{setting.text}: each launch waits for its kernel, and nothing overlaps"
        return warned(LAUNCH_VARIABLE, message, setting.evidence("not set"), fix=setting.unset)
    if setting.name == FILE_VARIABLE:
        if "%p" in setting.value or setting.value in STREAMS:
            return passed(
                FILE_VARIABLE, f"{setting.text}: each process has its own file", setting.evidence()
            )
        message = f"{setting.text}: all processes of a host write to this file, and overwrite it"
        return warned(
            FILE_VARIABLE,
            message,
            setting.evidence("%h and %p in the name"),
            fix=setting.to(f"{setting.value}.%h.%p"),
        )
    variables = settings(machine)
    level = variables.get(DEBUG_VARIABLE)
    if setting.name == SUBSYS_VARIABLE:
        subsystems = set(setting.value.upper().lstrip("^").split(","))
        per_operation = bool(subsystems & PER_OPERATION) != setting.value.startswith("^")
        is_read = level is not None and level.value.upper() in LEVELS_WITH_SUBSYS
        asked_for = FILE_VARIABLE in variables  # as patterns are read from such files
        better, excessive = "INIT,ENV,NET", is_read and per_operation and not asked_for
    elif setting.value.upper() not in LEVELS:
        message = (
            f"{setting.text} is not a level that NCCL knows: it prints nothing, not even errors"
        )
        return warned(
            setting.name, message, setting.evidence(", ".join(LEVELS)), fix=setting.to("WARN")
        )
    else:
        better, excessive = "INFO", setting.value.upper() == "TRACE"
    return judged(
        right=not excessive,
        subject=setting.name,
        good=setting.text,
        bad=f"{setting.text} prints a line for each operation",
        evidence=(setting.evidence(better if excessive else ""),),
        fix=setting.to(better),
    )


VISIBLE_DEVICES = CheckRow(
    id="BW188",
    name="cuda-visible-devices",
    layer=Layer.NCCL,
    title=f"{CUDA_VARIABLE}, compared with the GPUs of this host",
    right="not set, or all GPUs of this host, each once",
    why=(
        "Ranks that see different subsets of the GPUs number them differently, and NCCL may not use"
        " peer-to-peer and NVLink SHARP between them. An index that does not exist hides all that"
        " follow it."
    ),
    fix=f"unset {CUDA_VARIABLE}",
    stays=(
        "remove it from the job script and the shell's startup files; a scheduler that shares hosts"
        " sets it intentionally"
    ),
    reads=("environment", "NVML"),
    sources=("CUDA C++ programming guide, environment variables",),
)


@check(VISIBLE_DEVICES, needs=ENVIRONMENT)
def check_visible_devices(machine: Machine) -> Iterator[Finding]:
    """The GPUs that the variable shows; an empty value hides all."""
    value = (machine.environment or {}).get(CUDA_VARIABLE)
    if value is None:
        yield passed("", f"{CUDA_VARIABLE} is not set")
        return
    yield _judge_visible_devices(machine, value)


def _judge_visible_devices(machine: Machine, value: str) -> Finding:
    variable_evidence = Evidence(f"${CUDA_VARIABLE}", value, "not set")
    count = len(machine.host.gpus)
    if not count:
        reason = machine.host.gpu_reason or "the GPUs of this host are unknown"
        return not_offered("", f"{CUDA_VARIABLE}={value}: {reason}", variable_evidence)
    words = [word.strip() for word in value.split(",") if word.strip()]
    evidence = (variable_evidence, Evidence("NVML", f"{count} GPUs"))
    absent = [word for word in words if word.lstrip("-").isdecimal() and not 0 <= int(word) < count]
    if not words or absent:
        effect = "all GPUs are hidden"
        if absent:
            effect = f"GPU {absent[0]} does not exist: it and all after it are hidden"
        return warned("", f"{CUDA_VARIABLE}={value}: {effect}", *evidence, fix=VISIBLE_DEVICES.fix)
    if len(set(words)) < len(words):
        message = f"{CUDA_VARIABLE}={value} names a GPU twice"
        return warned("", message, *evidence, fix=VISIBLE_DEVICES.fix)
    if len(words) < count:
        message = f"{CUDA_VARIABLE}={value} shows {len(words)} of {count} GPUs"
        return warned("", message, *evidence, fix=VISIBLE_DEVICES.fix)
    return passed("", f"{CUDA_VARIABLE}={value} shows all {count} GPUs", *evidence)


TORCH_NAMES = CheckRow(
    id="BW191",
    name="torch-nccl-names",
    layer=Layer.NCCL,
    title="PyTorch's variables for NCCL",
    right=f"names that begin with TORCH_; {BLOCKING} not set",
    why=(
        "NCCL_ASYNC_ERROR_HANDLING and others are read by PyTorch, not NCCL. They now begin with "
        "TORCH_, and the old names are deprecated. With blocking wait each wait() holds the CPU "
        "thread until the GPU is done, so computation and communication overlap less."
    ),
    fix="export TORCH_NCCL_ASYNC_ERROR_HANDLING=3",
    stays="set it in the job script",
    reads=VARIABLE_SOURCES,
    sources=("PyTorch documentation, ProcessGroupNCCL environment variables",),
)


@variable(TORCH_NAMES, *RENAMED, BLOCKING)
def check_torch_names(machine: Machine, setting: Setting) -> Finding:
    if setting.name == BLOCKING:
        if parse_int(setting.value) == 0:
            return passed(BLOCKING, f"{setting.text} is the default", setting.evidence())
        return warned(
            BLOCKING,
            f"{setting.text}: each wait() blocks the CPU thread",
            setting.evidence("not set"),
            fix=setting.unset,
        )
    new = f"TORCH_{setting.name}"
    message = f"{setting.name} is PyTorch's deprecated name for {new}"
    return warned(
        setting.name,
        message,
        setting.evidence(new),
        fix=Setting(new, setting.value, setting.file).to(setting.value),
    )


VARIABLE_NAMES = CheckRow(
    id="BW192",
    name="nccl-names",
    layer=Layer.NCCL,
    title="names of NCCL variables",
    right="names that a version of NCCL reads",
    why=(
        "NCCL silently ignores a name that it does not know. For example, NCCL_TIMEOUT is often set"
        " in training scripts and does nothing."
    ),
    fix="unset {variable}",
    stays=REMOVE_VARIABLE,
    reads=VARIABLE_SOURCES,
    sources=(
        "NCCL user guide, environment variables",
        "names in the libraries of NCCL 2.14.3 to 2.32.3",
    ),
)


def _similar(name: str) -> str:
    """The only known name that begins with this one, else the closest; '' if none is close."""
    longer = [known for known in NAMES if known.startswith(name)]
    close = longer if len(longer) == 1 else get_close_matches(name, NAMES, 1, cutoff=0.85)
    return close[0] if close else ""


@check(VARIABLE_NAMES, needs=ENVIRONMENT)
def check_names(machine: Machine) -> Iterator[Finding]:
    """A finding for each variable of NCCL that no version reads."""
    variables = settings(machine)
    named = [
        setting
        for name, setting in variables.items()
        if name.startswith("NCCL_") and not name.startswith(PREFIXES)
    ]
    strange = [
        setting
        for setting in named
        if setting.name not in NAMES | OTHERS
        and setting.name not in RENAMED
        and not plugin_with(setting.name, machine.environment or {})
    ]
    for setting in strange:
        similar = _similar(setting.name)
        suggestion = f"; the closest name is {similar}" if similar else ""
        yield warned(
            setting.name,
            f"no version of NCCL from 2.14 to 2.32 reads {setting.name}{suggestion}",
            setting.evidence(similar),
            fix=setting.unset,
        )
    if not strange:
        yield passed(
            "",
            f"{len(named)} variables, all known" if named else "no NCCL variable is set",
            *(setting.evidence() for setting in named),
        )


VALUES = CheckRow(
    id="BW193",
    name="nccl-values",
    layer=Layer.NCCL,
    title="values of NCCL switches",
    right="numbers",
    why=(
        "NCCL reads a switch as a number, and a word as 0. NCCL_P2P_DISABLE=true disables "
        "nothing, and NCCL_NVLS_ENABLE=yes disables NVLink SHARP."
    ),
    fix="export {variable}=1",
    stays=REMOVE_VARIABLE,
    reads=VARIABLE_SOURCES,
    sources=("NCCL, src/misc/param.cc",),
)


@check(VALUES, needs=ENVIRONMENT)
def check_values(machine: Machine) -> Iterator[Finding]:
    """A finding for each variable in _DISABLE or _ENABLE that is not a number."""
    variables = settings(machine)
    switches = [
        setting
        for name, setting in variables.items()
        if name.startswith("NCCL_") and name.endswith(SWITCHES)
    ]
    words = [
        setting
        for setting in switches
        if not setting.value.strip()[:1].isdigit() and setting.value.strip()[:1] not in ("-", "+")
    ]
    for setting in words:
        meant = "1" if setting.value.lower() in TRUE_WORDS else "0"
        fix = setting.to(meant)
        if meant == "1" and setting.name.endswith("_DISABLE"):
            # it has disabled nothing so far, and jobs ran
            fix = f"{setting.unset}; only if it must be disabled: {fix}"
        yield warned(
            setting.name, f"NCCL reads {setting.text} as 0", setting.evidence("a number"), fix=fix
        )
    if not words:
        named = ", ".join(setting.text for setting in switches)
        yield passed(
            "",
            f"numbers: {named}" if named else "no NCCL switch is set",
            *(setting.evidence() for setting in switches),
        )
