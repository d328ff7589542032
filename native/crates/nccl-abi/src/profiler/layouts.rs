//! Offsets of all fields, as in NCCL's headers.

use super::*;

layout!(Head, 24, { kind @ 0, parent @ 8, rank @ 16 });
layout!(HeadV4, 24, { kind @ 0, parent @ 8, rank @ 16 });
layout!(Coll, 80, {
    sequence @ 24 - BODY, func @ 32 - BODY, send @ 40 - BODY, recv @ 48 - BODY, count @ 56 - BODY,
    root @ 64 - BODY,
    datatype @ 72 - BODY, channels @ 80 - BODY, warps @ 81 - BODY, algo @ 88 - BODY, proto @ 96 -
    BODY,
});
layout!(CollParent, 88, { coll @ 0, plan @ 104 - BODY });
layout!(CollVariant, 104, { parent @ 0, variant @ 112 - BODY, symmetric @ 120 - BODY });
layout!(CeColl, 88, {
    sequence @ 24 - BODY, func @ 32 - BODY, send @ 40 - BODY, recv @ 48 - BODY, count @ 56 - BODY,
    root @ 64 - BODY,
    datatype @ 72 - BODY, sync @ 80 - BODY, batch_sync @ 88 - BODY, batch_size @ 92 - BODY, batches
    @ 96 - BODY,
    number @ 100 - BODY, stream @ 104 - BODY,
});
layout!(P2pParent, 48, { p2p @ 0, plan @ 64 - BODY });
layout!(GroupApi, 8, { captured @ 24 - BODY, depth @ 28 - BODY });
layout!(KernelLaunch, 8, { stream @ 24 - BODY });
layout!(CollV2, 104, {
    name @ 24 - BODY, comm_hash @ 32 - BODY, sequence @ 40 - BODY, func @ 48 - BODY, send @ 56 -
    BODY, recv @ 64 - BODY,
    count @ 72 - BODY, root @ 80 - BODY, datatype @ 88 - BODY, traffic_bytes @ 96 - BODY, channels @
    104 - BODY,
    warps @ 105 - BODY, algo @ 112 - BODY, proto @ 120 - BODY,
});
layout!(P2p, 40, {
    func @ 24 - BODY, buff @ 32 - BODY, datatype @ 40 - BODY, count @ 48 - BODY, peer @ 56 - BODY,
    channels @ 60 - BODY,
});
layout!(P2pV2, 56, {
    name @ 24 - BODY, comm_hash @ 32 - BODY, func @ 40 - BODY, buff @ 48 - BODY, datatype @ 56 -
    BODY, count @ 64 - BODY,
    peer @ 72 - BODY,
});
layout!(KernelCh, 16, { channel @ 24 - BODY, timer @ 32 - BODY });
layout!(CollApi, 48, {
    func @ 24 - BODY, count @ 32 - BODY, datatype @ 40 - BODY, root @ 48 - BODY, stream @ 56 - BODY,
    captured @ 64 - BODY,
});
layout!(P2pApi, 40, {
    func @ 24 - BODY, count @ 32 - BODY, datatype @ 40 - BODY, stream @ 48 - BODY, captured @ 56 -
    BODY,
});
layout!(ProfilerV5, 48, {
    name @ 0, init @ 8, start_event @ 16, stop_event @ 24, record_event_state @ 32, finalize @ 40,
});
layout!(ProfilerV4, 48, {
    name @ 0, init @ 8, start_event @ 16, stop_event @ 24, record_event_state @ 32, finalize @ 40,
});
layout!(ProfilerV2, 48, {
    name @ 0, init @ 8, start_event @ 16, stop_event @ 24, record_event_state @ 32, finalize @ 40,
});
