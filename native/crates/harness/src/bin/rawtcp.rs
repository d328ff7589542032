//! Measures how much TCP carries between two hosts with nothing but `send` and `recv`: the upper
//! limit of any transport over TCP.
//!
//! Run `rawtcp serve ADDRESS PORT` on one host and `rawtcp run ADDRESS PORT [--streams N]
//! [--seconds S] [--both] [--piece BYTES]` on the other, which prints one line of JSON. Both accept
//! `[--congestion NAME]` and `[--discard]`, with which the kernel drops what this end receives
//! (MSG_TRUNC) instead of copying it. Each stream has one direction and a blocking thread at each
//! end, which moves a piece (1 MiB) at a time from or to one buffer. Pieces that stay in a core's
//! cache show TCP without the memory traffic of large messages.

use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::SockRef;

use busbw_harness::{Arguments, Control, Failure, Memory, failed, process_cpu_s};

const USAGE: &str = "usage: rawtcp serve ADDRESS PORT [--congestion NAME] [--discard]\n       \
    rawtcp run ADDRESS PORT [--streams N] [--seconds S] [--both] \
                     [--piece BYTES] [--congestion NAME] [--discard]";
/// The first byte of a stream: which end sends.
const I_SEND: u8 = b'>';
const YOU_SEND: u8 = b'<';

/// The result of a thread: bytes received, and seconds from the first byte to the last.
type Carried = Result<(u64, f64), Failure>;

/// The measurement.
struct Plan {
    streams: usize,
    seconds: f64,
    both: bool,
    piece: usize,
}

fn main() -> ExitCode {
    let (plan, target) = match read(Arguments::from_process()) {
        Ok(asked) => asked,
        Err(failure) => {
            eprintln!("error: {failure}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = plan.map_or_else(|| serve(&target), |plan| run(&target, &plan));
    done.map_or_else(
        |failure| {
            eprintln!("error: {failure}");
            ExitCode::from(3)
        },
        |()| ExitCode::SUCCESS,
    )
}

/// The address, the congestion control (empty is the system's default), and whether what arrives is
/// dropped.
struct Target {
    address: String,
    port: u16,
    congestion: String,
    discard: bool,
}

impl Target {
    fn tuned(&self, stream: TcpStream) -> Result<TcpStream, Failure> {
        if !self.congestion.is_empty() {
            let set = SockRef::from(&stream).set_tcp_congestion(self.congestion.as_bytes());
            set.map_err(failed(format!("--congestion {}", self.congestion)))?;
        }
        Ok(stream)
    }
}

/// The plan (None for serve) and the address.
fn read(mut arguments: Arguments) -> Result<(Option<Plan>, Target), Failure> {
    let (streams, seconds) = (arguments.value("--streams", 1)?, arguments.value("--seconds", 5.0)?);
    let (both, piece) = (arguments.flag("--both"), arguments.value("--piece", 1 << 20)?);
    let congestion = arguments.value("--congestion", String::new())?;
    let discard = arguments.flag("--discard");
    let [verb, address, port] = arguments.rest()?;
    let port = port.parse().map_err(|_| format!("{port}: not a port"))?;
    let fits = (1..=1024).contains(&streams)
        && (0.01..=3600.0).contains(&seconds)
        && (1..=1 << 30).contains(&piece);
    let plan = match verb.as_str() {
        "serve" => None,
        "run" if fits => Some(Plan { streams, seconds, both, piece }),
        "run" => {
            return Err(
                "1 to 1024 streams, 0.01 to 3600 seconds, pieces of 1 byte to 1 GiB".to_owned()
            );
        }
        _ => return Err(format!("{verb}: neither serve nor run")),
    };
    Ok((plan, Target { address, port, congestion, discard }))
}

/// Serve runs until killed. The first line printed is the address.
fn serve(target: &Target) -> Result<(), Failure> {
    let (address, port) = (target.address.as_str(), target.port);
    let listener =
        TcpListener::bind((address, port)).map_err(failed(format!("{address} port {port}")))?;
    println!("listening on {}", listener.local_addr().map_err(failed("address"))?);
    loop {
        let (stream, peer) = listener.accept().map_err(failed("accept"))?;
        if let Err(failure) = serve_one(target, &listener, Control::over(stream)?) {
            eprintln!("error: {peer}: {failure}");
        }
    }
}

fn serve_one(target: &Target, listener: &TcpListener, mut control: Control) -> Result<(), Failure> {
    let [streams, piece, seconds] = control.values::<f64, 3>()?;
    let mut made = Vec::new();
    for _ in 0..streams as usize {
        let (mut stream, _) = listener.accept().map_err(failed("accept"))?;
        let mut says = [0];
        stream.read_exact(&mut says).map_err(failed("first byte"))?;
        made.push((target.tuned(stream)?, says[0] == YOU_SEND));
    }
    control.meet()?;
    let (received, cpu_s) = carry(made, seconds, piece as usize, target.discard)?;
    control.send(&format!("{} {} {cpu_s}", received.0, received.1))
}

fn run(target: &Target, plan: &Plan) -> Result<(), Failure> {
    let (address, port) = (target.address.as_str(), target.port);
    let &Plan { streams, seconds, both, piece } = plan;
    let connect =
        || TcpStream::connect((address, port)).map_err(failed(format!("{address} port {port}")));
    let mut control = Control::over(connect()?)?;
    let count = if both { 2 * streams } else { streams };
    control.send(&format!("{count} {piece} {seconds}"))?;
    let mut made = Vec::new();
    for number in 0..count {
        let mut stream = connect()?;
        let sends = number < streams;
        stream.write_all(&[if sends { I_SEND } else { YOU_SEND }]).map_err(failed("first byte"))?;
        made.push((target.tuned(stream)?, sends));
    }
    control.meet()?;
    let (received, cpu_s) = carry(made, seconds, piece, target.discard)?;
    let [there_bytes, there_s, serve_cpu_s] = control.values::<f64, 3>()?;
    let rate = |bytes: f64, seconds: f64| if seconds > 0.0 { bytes / seconds / 1e9 } else { 0.0 };
    let moved = (there_bytes + received.0 as f64) / 1e9;
    println!(
        "{{\"streams\": {streams}, \"both\": {both}, \"piece_bytes\": {piece}, \"to_GBps\": {:.3}, \"from_GBps\": {:.3}, \
        \"cpu_s\": {{\"run\": {cpu_s:.3}, \"serve\": \
         {serve_cpu_s:.3}}}, \"cpu_s_per_GB\": {:.4}}}",
        rate(there_bytes, there_s),
        rate(received.0 as f64, received.1),
        (cpu_s + serve_cpu_s) / moved,
    );
    Ok(())
}

/// Move bytes on all streams (stream, whether this end sends). Returns ((bytes received, seconds of
/// the longest stream), processor time).
fn carry(
    streams: Vec<(TcpStream, bool)>,
    seconds: f64,
    piece: usize,
    discard: bool,
) -> Result<((u64, f64), f64), Failure> {
    let before = process_cpu_s();
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let spawn = |(stream, sends)| {
        std::thread::spawn(move || {
            if sends { send(stream, until, piece) } else { receive(&stream, piece, discard) }
        })
    };
    let threads: Vec<JoinHandle<Carried>> = streams.into_iter().map(spawn).collect();
    let mut received = (0, 0.0_f64);
    for thread in threads {
        let (bytes, took) = thread.join().map_err(|_| "a thread panicked".to_owned())??;
        received = (received.0 + bytes, received.1.max(took));
    }
    Ok((received, process_cpu_s() - before))
}

fn send(mut stream: TcpStream, until: Instant, piece: usize) -> Carried {
    let buffer = Memory::new(piece)?;
    while Instant::now() < until {
        stream.write_all(&buffer).map_err(failed("send"))?;
    }
    stream.shutdown(Shutdown::Write).map_err(failed("shutdown"))?;
    // Wait until the peer has read everything, so that both ends measure the same time.
    match stream.read(&mut [0]) {
        Ok(0) => Ok((0, 0.0)),
        Ok(_) => Err("end: unexpected data from the receiver".to_owned()),
        Err(error) => Err(format!("end: {error}")),
    }
}

fn receive(mut stream: &TcpStream, piece: usize, discard: bool) -> Carried {
    let mut buffer = Memory::new(piece)?;
    let mut nowhere = vec![MaybeUninit::uninit(); if discard { piece } else { 0 }];
    let (mut bytes, mut began) = (0, None);
    loop {
        let got = if discard {
            SockRef::from(stream).recv_with_flags(&mut nowhere, libc::MSG_TRUNC)
        } else {
            stream.read(&mut buffer)
        };
        match got {
            Ok(0) => {
                return Ok((
                    bytes,
                    began.map_or(0.0, |began: Instant| began.elapsed().as_secs_f64()),
                ));
            }
            Ok(count) => bytes += count as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("receive: {error}")),
        }
        began.get_or_insert_with(Instant::now);
    }
}
