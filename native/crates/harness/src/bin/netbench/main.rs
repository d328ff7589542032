//! Drives a net plugin between two processes as NCCL does, without a GPU. Measures rates, processor
//! time, and the latency of small messages.
//!
//! Run `netbench serve LIBRARY ADDRESS PORT` on one host, `netbench run LIBRARY ADDRESS PORT
//! [--mode M] [--channels C] [--size BYTES] [--in-flight K] [--seconds S]` on the other, which
//! prints one line of JSON. ADDRESS and PORT are for the control connection only.

use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;

use busbw_harness::{Arguments, Control, Failure, failed, process_cpu_s, thread_cpu_s};

use drive::{Channel, Mode};
use lane::Lane;
use plugin::{Handle, Plugin};

mod drive;
mod lane;
mod plugin;

const USAGE: &str = "usage: netbench serve LIBRARY ADDRESS PORT\n       netbench run LIBRARY ADDRESS PORT \
    [--mode one-way|both-ways|lock-step|ping-pong] \
                     [--channels C] [--size BYTES] [--in-flight K] [--seconds S]";

/// The measurement, known to both processes.
struct Plan {
    mode: String,
    channels: usize,
    size: usize,
    in_flight: usize,
    seconds: f64,
}

/// The results of one process: bytes received and their seconds, processor time of the process and
/// of its driving thread, latencies.
struct Seen {
    bytes: f64,
    seconds: f64,
    cpu_s: f64,
    driver_cpu_s: f64,
    halves_s: Vec<f64>,
}

fn main() -> ExitCode {
    let (plan, library, address, port) = match read(Arguments::from_process()) {
        Ok(asked) => asked,
        Err(failure) => {
            eprintln!("error: {failure}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = plan.map_or_else(
        || serve(&library, &address, port),
        |plan| run(&library, &address, port, &plan),
    );
    done.map_or_else(
        |failure| {
            eprintln!("error: {failure}");
            ExitCode::from(3)
        },
        |()| ExitCode::SUCCESS,
    )
}

/// The plan (None for serve), the library, and the control address.
fn read(mut arguments: Arguments) -> Result<(Option<Plan>, String, String, u16), Failure> {
    let mode = arguments.value("--mode", "both-ways".to_owned())?;
    let (channels, size) = (arguments.value("--channels", 2)?, arguments.value("--size", 1 << 20)?);
    let (in_flight, seconds) =
        (arguments.value("--in-flight", 8)?, arguments.value("--seconds", 5.0)?);
    let [verb, library, address, port] = arguments.rest()?;
    let port = port.parse().map_err(|_| format!("{port}: not a port"))?;
    let alone = Mode::named(&mode)? == Mode::PingPong;
    let (channels, in_flight) = if alone { (1, 1) } else { (channels, in_flight) };
    let plan = match verb.as_str() {
        "serve" => None,
        "run" => Some(Plan { mode, channels, size, in_flight, seconds }.checked()?),
        _ => return Err(format!("{verb}: neither serve nor run")),
    };
    Ok((plan, library, address, port))
}

impl Plan {
    fn checked(self) -> Result<Self, Failure> {
        let Self { channels, size, in_flight, seconds, .. } = self;
        let fits = (1..=1024).contains(&channels)
            && (1..=1 << 30).contains(&size)
            && (1..=32).contains(&in_flight);
        if fits && (0.01..=3600.0).contains(&seconds) {
            return Ok(self);
        }
        Err("1 to 1024 channels, sizes of 1 byte to 1 GiB, 1 to 32 in flight, 0.01 to 3600 seconds"
            .to_owned())
    }
}

/// Serve one run.
fn serve(library: &str, address: &str, port: u16) -> Result<(), Failure> {
    let listener =
        TcpListener::bind((address, port)).map_err(failed(format!("{address} port {port}")))?;
    println!("listening on {}", listener.local_addr().map_err(failed("address"))?);
    let mut control = Control::over(listener.accept().map_err(failed("accept"))?.0)?;
    let mode = control.receive()?;
    let [channels, size, in_flight] = control.values()?;
    let plan = Plan { mode, channels, size, in_flight, seconds: 0.0 };
    let seen = take_part(&Plugin::open(library)?, &mut control, &plan, false)?;
    control.send(&format!("{} {} {} {}", seen.bytes, seen.seconds, seen.cpu_s, seen.driver_cpu_s))
}

fn run(library: &str, address: &str, port: u16, plan: &Plan) -> Result<(), Failure> {
    let stream =
        TcpStream::connect((address, port)).map_err(failed(format!("{address} port {port}")))?;
    let mut control = Control::over(stream)?;
    control.send(&plan.mode)?;
    control.send(&format!("{} {} {}", plan.channels, plan.size, plan.in_flight))?;
    let seen = take_part(&Plugin::open(library)?, &mut control, plan, true)?;
    let [bytes, seconds, cpu_s, driver_cpu_s] = control.values()?;
    println!(
        "{}",
        line(plan, &seen, &Seen { bytes, seconds, cpu_s, driver_cpu_s, halves_s: Vec::new() })
    );
    Ok(())
}

/// Connect, move messages, close.
fn take_part(
    plugin: &Plugin,
    control: &mut Control,
    plan: &Plan,
    runs: bool,
) -> Result<Seen, Failure> {
    let mode = Mode::named(&plan.mode)?;
    let mut channels = connect(plugin, control, plan, runs)?;
    control.meet()?;
    let (cpu, driver) = (process_cpu_s(), thread_cpu_s());
    let seconds = runs.then_some(plan.seconds);
    let halves_s = match channels.as_mut_slice() {
        [Channel { out: Some(out), back: Some(back) }] if mode == Mode::PingPong => {
            drive::ping_pong(plugin, out, back, seconds)?
        }
        channels => {
            drive::stream(plugin, channels, mode, plan.in_flight, seconds).map(|()| Vec::new())?
        }
    };
    let (cpu_s, driver_cpu_s) = (process_cpu_s() - cpu, thread_cpu_s() - driver);
    let received: Vec<&Lane> = channels.iter().filter_map(|one| one.back.as_ref()).collect();
    // From the first message to the last, without the bytes of the first.
    let spans: Vec<_> = received.iter().filter_map(|lane| lane.span).collect();
    let (first, last) =
        (spans.iter().map(|span| span.0).min(), spans.iter().map(|span| span.1).max());
    let seconds = first.zip(last).map_or(0.0, |(first, last)| (last - first).as_secs_f64());
    let bytes = received.iter().map(|lane| lane.done).sum::<usize>().saturating_sub(1) as f64
        * plan.size as f64;
    control.meet()?; // so that neither process closes while the other still measures
    for lane in channels.into_iter().flat_map(|one| [one.out, one.back]).flatten() {
        lane.close(plugin)?;
    }
    Ok(Seen { bytes, seconds, cpu_s, driver_cpu_s, halves_s })
}

/// All lanes. Handles are exchanged over the control connection, one for each channel and
/// direction.
fn connect(
    plugin: &Plugin,
    control: &mut Control,
    plan: &Plan,
    runs: bool,
) -> Result<Vec<Channel>, Failure> {
    let both = Mode::named(&plan.mode)?.is_both();
    let (sends, receives) = (runs || both, !runs || both);
    let mut listeners = Vec::new();
    for _ in 0..if receives { plan.channels } else { 0 } {
        let (listener, handle) = plugin.listen()?;
        listeners.push(listener);
        control.send(&handle.iter().map(|byte| format!("{byte:02x}")).collect::<String>())?;
    }
    let mut handles = Vec::new();
    for _ in 0..if sends { plan.channels } else { 0 } {
        handles.push(unhex(&control.receive()?)?);
    }
    let lane = |comm, out| Lane::new(comm, out, plan.size, plan.in_flight);
    let mut channels: Vec<Channel> =
        (0..plan.channels).map(|_| Channel { out: None, back: None }).collect();
    while channels.iter().any(|one| one.out.is_some() != sends || one.back.is_some() != receives) {
        for (channel, handle) in
            channels.iter_mut().zip(&mut handles).filter(|(channel, _)| channel.out.is_none())
        {
            channel.out = plugin.connect(handle)?.map(|comm| lane(comm, true)).transpose()?;
        }
        for (channel, &listener) in
            channels.iter_mut().zip(&listeners).filter(|(channel, _)| channel.back.is_none())
        {
            channel.back = plugin.accept(listener)?.map(|comm| lane(comm, false)).transpose()?;
        }
    }
    Ok(channels)
}

fn unhex(text: &str) -> Result<Handle, Failure> {
    let byte =
        |at: usize| text.get(2 * at..2 * at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..size_of::<Handle>()).map(byte).collect();
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| format!("unexpected line from the other process: {text}"))
}

/// The JSON: rates of each direction, processor seconds per GB of both directions.
fn line(plan: &Plan, run: &Seen, serve: &Seen) -> String {
    let rate = |seen: &Seen| if seen.seconds > 0.0 { seen.bytes / seen.seconds / 1e9 } else { 0.0 };
    let per_gb = |seconds: f64| seconds * 1e9 / (run.bytes + serve.bytes).max(1.0);
    let mut sorted = run.halves_s.clone();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| {
        sorted
            .get(((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1)))
            .map_or(0.0, |s| s * 1e6)
    };
    let latency = if sorted.is_empty() {
        "null".to_owned()
    } else {
        format!(
            "{{\"min\": {:.2}, \"median\": {:.2}, \"p99\": {:.2}, \"count\": {}}}",
            at(0.0),
            at(0.5),
            at(0.99),
            sorted.len()
        )
    };
    format!(
        "{{\"mode\": \"{}\", \"channels\": {}, \"size_bytes\": {}, \"in_flight\": {}, \"to_GBps\": {:.3}, \"from_GBps\": {:.3}, \
         \"cpu_s_per_GB\": {:.4}, \"driver_cpu_s_per_GB\": {:.4}, \
         \"cpu_s\": {{\"run\": {:.3}, \"serve\": {:.3}}}, \"latency_us\": {latency}}}",
        plan.mode,
        plan.channels,
        plan.size,
        plan.in_flight,
        rate(serve),
        rate(run),
        per_gb(run.cpu_s + serve.cpu_s),
        per_gb(run.driver_cpu_s + serve.driver_cpu_s),
        run.cpu_s,
        serve.cpu_s,
    )
}
