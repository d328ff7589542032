//! The clock of launches over hours of a GPU's time, with a driver whose events have known times.
//! tests/native/test_launches.py has the rest.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::ptr::without_provenance_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use busbw_events::{Driver, GpuClock, Handle, PAIRS, SUCCESS, Span, Untimed};

const CONTEXT: usize = 16;
const STREAM: u64 = 3;

/// The GPU's clock in ns, the time of each event, and how many there are.
#[derive(Default)]
struct Gpu {
    now: f64,
    events: HashMap<usize, f64>,
    created: usize,
}

static CONTEXT_ID: AtomicU64 = AtomicU64::new(1);
static GPU: LazyLock<Mutex<Gpu>> = LazyLock::new(Mutex::default);

unsafe extern "C" fn current(context: *mut Handle) -> c_int {
    // SAFETY: the caller passes the address of its own pointer.
    unsafe { context.write(without_provenance_mut(CONTEXT)) };
    SUCCESS
}

unsafe extern "C" fn id(_context: Handle, id: *mut u64) -> c_int {
    // SAFETY: the caller passes the address of its own number.
    unsafe { id.write(CONTEXT_ID.load(Ordering::Relaxed)) };
    SUCCESS
}

unsafe extern "C" fn enter(context: Handle) -> c_int {
    assert_eq!(context.addr(), CONTEXT);
    SUCCESS
}

unsafe extern "C" fn create(event: *mut Handle, _flags: c_uint) -> c_int {
    let mut gpu = GPU.lock().unwrap();
    gpu.created += 1;
    // SAFETY: the caller passes the address of its own pointer.
    unsafe { event.write(without_provenance_mut(gpu.created)) };
    SUCCESS
}

unsafe extern "C" fn record(event: Handle, _stream: Handle) -> c_int {
    let mut gpu = GPU.lock().unwrap();
    let now = gpu.now;
    gpu.events.insert(event.addr(), now);
    SUCCESS
}

unsafe extern "C" fn query(_event: Handle) -> c_int {
    SUCCESS
}

unsafe extern "C" fn elapsed(elapsed_ms: *mut f32, from: Handle, to: Handle) -> c_int {
    let gpu = GPU.lock().unwrap();
    // SAFETY: the caller passes the address of its own float.
    unsafe { elapsed_ms.write(((gpu.events[&to.addr()] - gpu.events[&from.addr()]) / 1e6) as f32) };
    SUCCESS
}

unsafe extern "C" fn capturing(_stream: Handle, status: *mut c_int) -> c_int {
    // SAFETY: the caller passes the address of its own int.
    unsafe { status.write(0) };
    SUCCESS
}

unsafe extern "C" fn exchange_mode(_mode: *mut c_int) -> c_int {
    SUCCESS
}

const DRIVER: Driver = Driver {
    current,
    id: Some(id),
    enter,
    create,
    record,
    query,
    elapsed,
    capturing,
    exchange_mode,
};

fn pass(ns: f64) {
    GPU.lock().unwrap().now += ns;
}

/// The span of a launch that takes so long, read at once.
fn launch(clock: &GpuClock, timing: u64, ns: f64) -> Span {
    let begun = clock.begin(0, STREAM, timing, false).expect("an event");
    pass(ns);
    clock.end(begun).expect("recorded");
    let mut spans = vec![];
    clock.read(&mut |time| spans.push(time.expect("a time")));
    assert_eq!(spans.len(), 1);
    spans[0]
}

#[test]
fn times_stay_exact_over_hours_and_no_event_is_lost() {
    let clock = GpuClock::new(DRIVER, |reason| panic!("{reason:?}"));
    assert_eq!((clock.gpu(), clock.gpu()), (Ok(0), Ok(0)));
    assert_eq!(GPU.lock().unwrap().created, 2 * PAIRS);
    let mut before = launch(&clock, 1, 5_000.0);
    for timing in 2..=3 * PAIRS as u64 {
        // an hour, then 2.5 ms: the base changes every 400 launches
        let idle = if timing == 9 { 3.6e12 } else { 2.5e6 };
        pass(idle);
        let span = launch(&clock, timing, 20_000.0);
        assert_eq!((span.timing, span.end - span.start), (timing, 20_000));
        let gap = (span.start - before.end) as f64;
        assert!((gap - idle).abs() <= 150.0 + idle * 1e-7, "{gap} ns after {idle}");
        before = span;
    }
    CONTEXT_ID.store(2, Ordering::Relaxed);
    assert_eq!(clock.gpu(), Ok(1), "another context at the same address has events of its own");
    let mut last = vec![];
    clock.read_last(&mut |time| last.push(time));
    assert_eq!(last, []);
    assert_eq!(
        clock.begin(0, STREAM, 1, false).unwrap_err(),
        Untimed::Ended,
        "the driver may be gone"
    );
}
