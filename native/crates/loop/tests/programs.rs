//! Programs over C functions that note their calls.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicU64;

use busbw_loop::{CREATED, Limits, Outcome, Program, Step, kind};

thread_local! {
    static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static FAIL_AT: RefCell<Option<usize>> = const { RefCell::new(None) };
    static BUSY: RefCell<u32> = const { RefCell::new(0) };
}

const FAILURE: c_int = 3;
const ENOUGH: Limits = Limits { iterations: 1, run_s: 60.0, idle_s: 60.0 };

fn note(text: String) -> c_int {
    CALLS.with_borrow_mut(|calls| {
        calls.push(text);
        if FAIL_AT.with_borrow(|at| *at) == Some(calls.len()) { FAILURE } else { 0 }
    })
}

fn noted() -> String {
    CALLS.take().join(" ")
}

unsafe extern "C" fn start() -> c_int {
    note("start".into())
}
unsafe extern "C" fn end() -> c_int {
    note("end".into())
}
unsafe extern "C" fn plain(
    from: *const c_void,
    to: *mut c_void,
    n: usize,
    t: c_int,
    c: *mut c_void,
    s: *mut c_void,
) -> c_int {
    note(format!("plain({},{},{n},{t},{},{})", from as usize, to as usize, c as usize, s as usize))
}
unsafe extern "C" fn one(
    from: *const c_void,
    to: *mut c_void,
    n: usize,
    t: c_int,
    k: c_int,
    c: *mut c_void,
    s: *mut c_void,
) -> c_int {
    note(format!(
        "one({},{},{n},{t},{k},{},{})",
        from as usize, to as usize, c as usize, s as usize
    ))
}
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn two(
    from: *const c_void,
    to: *mut c_void,
    n: usize,
    t: c_int,
    k: c_int,
    r: c_int,
    c: *mut c_void,
    s: *mut c_void,
) -> c_int {
    note(format!(
        "two({},{},{n},{t},{k},{r},{},{})",
        from as usize, to as usize, c as usize, s as usize
    ))
}
unsafe extern "C" fn peer(
    at: *mut c_void,
    n: usize,
    t: c_int,
    p: c_int,
    c: *mut c_void,
    s: *mut c_void,
) -> c_int {
    note(format!("peer({},{n},{t},{p},{},{})", at as usize, c as usize, s as usize))
}
unsafe extern "C" fn create(
    operator: *mut c_int,
    scalar: *const c_void,
    t: c_int,
    where_: c_int,
    c: *mut c_void,
) -> c_int {
    // SAFETY: the program passes a place of its own.
    unsafe { *operator = 77 };
    note(format!("create({},{t},{where_},{})", scalar as usize, c as usize))
}
unsafe extern "C" fn destroy(operator: c_int, c: *mut c_void) -> c_int {
    note(format!("destroy({operator},{})", c as usize))
}
unsafe extern "C" fn context(h: *mut c_void) -> c_int {
    note(format!("context({})", h as usize))
}
unsafe extern "C" fn copy(to: *mut c_void, from: *const c_void, n: usize, s: *mut c_void) -> c_int {
    note(format!("copy({},{},{n},{})", to as usize, from as usize, s as usize))
}
unsafe extern "C" fn enqueue(h: *mut c_void, s: *mut c_void) -> c_int {
    note(format!("enqueue({},{})", h as usize, s as usize))
}
unsafe extern "C" fn query(s: *mut c_void) -> c_int {
    let busy = BUSY.with_borrow_mut(|left| {
        *left = left.saturating_sub(1);
        *left > 0
    });
    if busy { 600 } else { note(format!("query({})", s as usize)) }
}

fn step(kind: u32, function: *const ()) -> Step {
    Step {
        kind,
        dtype: 7,
        operator: 1,
        peer: 2,
        function: function.cast(),
        source: ptr::without_provenance(10),
        target: ptr::without_provenance_mut(20),
        count: 30,
        handle: ptr::without_provenance_mut(40),
        stream: ptr::without_provenance_mut(50),
    }
}

fn bare(kind: u32) -> Step {
    step(kind, ptr::null())
}

fn program(steps: &[Step]) -> Result<Program, String> {
    // SAFETY: the functions above have the types of the kinds that the tests give them.
    unsafe { Program::new(steps) }
}

fn run(program: &mut Program, limits: Limits) -> Outcome {
    let mut times = vec![0.0; program.clocks()];
    // SAFETY: as for `program`.
    unsafe { program.run(limits, &AtomicU64::new(0), &mut times) }
}

#[test]
fn each_kind_passes_its_arguments_in_the_order_of_the_c_function() {
    let mut reducing = step(kind::REDUCING, one as *const ());
    reducing.operator = CREATED;
    let steps = [
        step(kind::GROUP_START, start as *const ()),
        step(kind::PLAIN, plain as *const ()),
        step(kind::ROOTED, one as *const ()),
        step(kind::REDUCING_TO_ROOT, two as *const ()),
        step(kind::PEER, peer as *const ()),
        step(kind::GROUP_END, end as *const ()),
        step(kind::CREATE_OPERATOR, create as *const ()),
        reducing,
        Step { operator: CREATED, ..step(kind::DESTROY_OPERATOR, destroy as *const ()) },
        step(kind::SET_CONTEXT, context as *const ()),
        step(kind::COPY, copy as *const ()),
        step(kind::ENQUEUE, enqueue as *const ()),
        bare(kind::END),
        step(kind::IDLE, query as *const ()),
    ];
    let outcome = run(&mut program(&steps).unwrap(), ENOUGH);
    assert_eq!((outcome.code, outcome.iterations, outcome.idle), (0, 1, 1));
    assert!(outcome.start_s <= outcome.enqueued_s && outcome.enqueued_s <= outcome.end_s);
    assert_eq!(
        noted(),
        "start plain(10,20,30,7,40,50) one(10,20,30,7,2,40,50) two(10,20,30,7,1,2,40,50) peer(20,30,7,2,40,50) end \
         create(10,7,2,40) one(10,20,30,7,77,40,50) destroy(77,40) context(40) copy(20,10,30,50) enqueue(40,50) query(50)"
    );
}

#[test]
fn iterations_repeat_in_turn_and_the_steps_behind_them_follow_once() {
    let steps = [
        step(kind::SET_CONTEXT, context as *const ()),
        bare(kind::END),
        step(kind::ENQUEUE, enqueue as *const ()),
        bare(kind::END),
        step(kind::IDLE, query as *const ()),
    ];
    let mut program = program(&steps).unwrap();
    let done = AtomicU64::new(0);
    // SAFETY: as for `program`.
    let outcome = unsafe { program.run(Limits { iterations: 3, ..ENOUGH }, &done, &mut []) };
    assert_eq!((outcome.iterations, done.into_inner()), (3, 3));
    assert_eq!(noted(), "context(40) enqueue(40,50) context(40) query(50)");
}

#[test]
fn a_run_that_takes_too_long_returns_and_goes_on_with_the_next_iteration() {
    let iterations = ["context(40)", "enqueue(40,50)", "copy(20,10,30,50)"];
    let steps = [
        step(kind::SET_CONTEXT, context as *const ()),
        bare(kind::END),
        step(kind::ENQUEUE, enqueue as *const ()),
        bare(kind::END),
        step(kind::COPY, copy as *const ()),
        bare(kind::END),
        step(kind::IDLE, query as *const ()),
    ];
    let mut program = program(&steps).unwrap();
    let limits = Limits { iterations: 40, run_s: -1.0, idle_s: 0.0 };
    assert_eq!(run(&mut program, limits).iterations, 16);
    assert_eq!(run(&mut program, Limits { iterations: 24, ..ENOUGH }).iterations, 24);
    let calls: Vec<_> = iterations.into_iter().cycle().take(40).chain(["query(50)"]).collect();
    assert_eq!(noted(), calls.join(" "));
}

#[test]
fn a_wait_ends_with_the_work_or_with_its_limit() {
    let mut program = program(&[bare(kind::END), step(kind::IDLE, query as *const ())]).unwrap();
    BUSY.set(5);
    assert_eq!(run(&mut program, ENOUGH).idle, 1);
    BUSY.set(u32::MAX);
    let outcome = run(&mut program, Limits { idle_s: 0.0, ..ENOUGH });
    assert_eq!((outcome.idle, outcome.code), (0, 0));
}

#[test]
fn a_failure_ends_the_run_with_its_code_and_closes_open_groups() {
    let (open, close) =
        (step(kind::GROUP_START, start as *const ()), step(kind::GROUP_END, end as *const ()));
    let steps = [open, open, step(kind::PLAIN, plain as *const ()), close, close, bare(kind::END)];
    let mut program = program(&steps).unwrap();
    let failures = [
        (1, kind::GROUP_START, 1),
        (2, kind::GROUP_START, 3),
        (3, kind::PLAIN, 5),
        (4, kind::GROUP_END, 5),
        (5, kind::GROUP_END, 5),
    ];
    for (fail_at, failed, calls) in failures {
        FAIL_AT.set(Some(fail_at));
        let outcome = run(&mut program, Limits { iterations: 5, ..ENOUGH });
        FAIL_AT.set(None);
        assert_eq!(
            (outcome.code, outcome.kind, outcome.iterations, outcome.idle),
            (FAILURE, failed, 0, 0)
        );
        assert_eq!(noted().split(' ').count(), calls);
    }
    assert_eq!(run(&mut program, ENOUGH).code, 0);
}

#[test]
fn each_clock_writes_the_time_to_its_own_place_in_every_turn_and_run() {
    let (clock, end) = (bare(kind::CLOCK), bare(kind::END));
    let mut program = program(&[clock, clock, end, clock, end, clock]).unwrap();
    assert_eq!(program.clocks(), 4);
    let mut times_of = |iterations| {
        let mut times = [0.0; 4];
        // SAFETY: as for `program`.
        let outcome =
            unsafe { program.run(Limits { iterations, ..ENOUGH }, &AtomicU64::new(0), &mut times) };
        assert!(
            times
                .iter()
                .all(|&time| time == 0.0 || (outcome.start_s <= time && time <= outcome.end_s))
        );
        times
    };
    assert_eq!(times_of(1).map(|time| time > 0.0), [true, true, false, true]);
    assert_eq!(
        times_of(1).map(|time| time > 0.0),
        [false, false, true, true],
        "the second iteration"
    );
    let times = times_of(3);
    assert!(
        [2, 0, 1, 3].is_sorted_by(|&one, &other| 0.0 < times[one] && times[one] <= times[other]),
        "the last turn is written"
    );
}

#[test]
fn what_cannot_run_is_refused() {
    let group = step(kind::GROUP_START, start as *const ());
    let mut no_handle = step(kind::PLAIN, plain as *const ());
    no_handle.handle = ptr::null_mut();
    for (steps, reason) in [
        (vec![], "no step ends an iteration"),
        (vec![step(kind::IDLE, query as *const ())], "no step ends an iteration"),
        (vec![bare(kind::PLAIN), bare(kind::END)], "step 0 of kind 4: its function is NULL"),
        (
            vec![no_handle, bare(kind::END)],
            "step 0 of kind 4: its communicator, context, event or graph is NULL",
        ),
        (vec![bare(99), bare(kind::END)], "step 0 of kind 99: its kind is unknown"),
        (vec![group, bare(kind::END)], "step 1: a group is still open"),
        (
            vec![step(kind::GROUP_END, end as *const ()), bare(kind::END)],
            "step 0: no group is open",
        ),
        (vec![bare(kind::END), group], "a group has no end"),
    ] {
        assert_eq!(program(&steps).err().as_deref(), Some(reason));
    }
}
