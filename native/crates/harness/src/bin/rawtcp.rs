//! How much TCP carries between two hosts when nothing but `send` and `recv` stands between memory and the wire: the ceiling of any
//! transport over TCP.
//!
//! `rawtcp serve ADDRESS PORT` on one host, `rawtcp run ADDRESS PORT [--streams N] [--seconds S] [--both]` on the other, which prints one
//! line of JSON. Every stream goes one way and has a blocking thread at each end, which moves 1 MiB at a time from or to one hot buffer.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use harness::{Control, Failure, Words, failed, process_cpu_s};

const USAGE: &str = "usage: rawtcp serve ADDRESS PORT\n       rawtcp run ADDRESS PORT [--streams N] [--seconds S] [--both]";
const PIECE: usize = 1 << 20;
/// What the connecting side says first on a stream: who will send on it.
const I_SEND: u8 = b'>';
const YOU_SEND: u8 = b'<';

/// What a thread carried: bytes received, and seconds from its first byte to its last.
type Carried = Result<(u64, f64), Failure>;

/// What a command line asks for.
enum Asked {
    Serve,
    Run { streams: usize, seconds: f64, both: bool },
}

fn main() -> ExitCode {
    let (asked, address, port) = match read(Words::of_process()) {
        Ok(asked) => asked,
        Err(failure) => {
            eprintln!("error: {failure}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = match asked {
        Asked::Serve => serve(&address, port),
        Asked::Run { streams, seconds, both } => run(&address, port, streams, seconds, both),
    };
    done.map_or_else(
        |failure| {
            eprintln!("error: {failure}");
            ExitCode::from(3)
        },
        |()| ExitCode::SUCCESS,
    )
}

fn read(mut words: Words) -> Result<(Asked, String, u16), Failure> {
    let (streams, seconds, both) = (words.value("--streams", 1)?, words.value("--seconds", 5.0)?, words.flag("--both"));
    let [verb, address, port] = words.rest()?;
    let port = port.parse().map_err(|_| format!("{port}: not a port"))?;
    let asked = match verb.as_str() {
        "serve" => Asked::Serve,
        "run" if (1..=1024).contains(&streams) && (0.01..=3600.0).contains(&seconds) => Asked::Run { streams, seconds, both },
        "run" => return Err(format!("--streams {streams} --seconds {seconds}: 1 to 1024 streams, 0.01 to 3600 seconds")),
        _ => return Err(format!("{verb}: neither serve nor run")),
    };
    Ok((asked, address, port))
}

/// Serve runs one after the other until killed; the line that it prints says where.
fn serve(address: &str, port: u16) -> Result<(), Failure> {
    let listener = TcpListener::bind((address, port)).map_err(failed(format!("{address} port {port}")))?;
    println!("listening on {}", listener.local_addr().map_err(failed("address"))?);
    loop {
        let (stream, peer) = listener.accept().map_err(failed("accept"))?;
        if let Err(failure) = serve_one(&listener, Control::over(stream)?) {
            eprintln!("error: {peer}: {failure}");
        }
    }
}

fn serve_one(listener: &TcpListener, mut control: Control) -> Result<(), Failure> {
    let [streams, seconds] = control.values::<f64, 2>()?;
    let mut made = Vec::new();
    for _ in 0..streams as usize {
        let (mut stream, _) = listener.accept().map_err(failed("accept"))?;
        let mut says = [0];
        stream.read_exact(&mut says).map_err(failed("first byte"))?;
        made.push((stream, says[0] == YOU_SEND));
    }
    control.meet()?;
    let (received, cpu_s) = carry(made, seconds)?;
    control.say(&format!("{} {} {cpu_s}", received.0, received.1))
}

fn run(address: &str, port: u16, streams: usize, seconds: f64, both: bool) -> Result<(), Failure> {
    let connect = || TcpStream::connect((address, port)).map_err(failed(format!("{address} port {port}")));
    let mut control = Control::over(connect()?)?;
    let count = if both { 2 * streams } else { streams };
    control.say(&format!("{count} {seconds}"))?;
    let mut made = Vec::new();
    for number in 0..count {
        let mut stream = connect()?;
        let sends = number < streams;
        stream.write_all(&[if sends { I_SEND } else { YOU_SEND }]).map_err(failed("first byte"))?;
        made.push((stream, sends));
    }
    control.meet()?;
    let (received, cpu_s) = carry(made, seconds)?;
    let [there_bytes, there_s, serve_cpu_s] = control.values::<f64, 3>()?;
    let rate = |bytes: f64, seconds: f64| if seconds > 0.0 { bytes / seconds / 1e9 } else { 0.0 };
    let moved = (there_bytes + received.0 as f64) / 1e9;
    println!(
        "{{\"streams\": {streams}, \"both\": {both}, \"to_GBps\": {:.3}, \"from_GBps\": {:.3}, \"cpu_s\": {{\"run\": {cpu_s:.3}, \"serve\": \
         {serve_cpu_s:.3}}}, \"cpu_s_per_GB\": {:.4}}}",
        rate(there_bytes, there_s),
        rate(received.0 as f64, received.1),
        (cpu_s + serve_cpu_s) / moved,
    );
    Ok(())
}

/// Move bytes on all streams, (stream, whether this end sends): ((bytes received in all, seconds of the longest stream), processor time).
fn carry(streams: Vec<(TcpStream, bool)>, seconds: f64) -> Result<((u64, f64), f64), Failure> {
    let before = process_cpu_s();
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let spawn = |(stream, sends)| std::thread::spawn(move || if sends { send(stream, until) } else { receive(stream) });
    let threads: Vec<JoinHandle<Carried>> = streams.into_iter().map(spawn).collect();
    let mut received = (0, 0.0_f64);
    for thread in threads {
        let (bytes, took) = thread.join().map_err(|_| "a thread panicked".to_owned())??;
        received = (received.0 + bytes, received.1.max(took));
    }
    Ok((received, process_cpu_s() - before))
}

fn send(mut stream: TcpStream, until: Instant) -> Carried {
    let buffer = vec![0x5a; PIECE];
    while Instant::now() < until {
        stream.write_all(&buffer).map_err(failed("send"))?;
    }
    stream.shutdown(Shutdown::Write).map_err(failed("shutdown"))?;
    // Until the peer has read all, so that both ends count the same time.
    match stream.read(&mut [0]) {
        Ok(0) => Ok((0, 0.0)),
        Ok(_) => Err("end: the receiver spoke".to_owned()),
        Err(error) => Err(format!("end: {error}")),
    }
}

fn receive(mut stream: TcpStream) -> Carried {
    let mut buffer = vec![0; PIECE];
    let (mut bytes, mut began) = (0, None);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok((bytes, began.map_or(0.0, |began: Instant| began.elapsed().as_secs_f64()))),
            Ok(count) => bytes += count as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("receive: {error}")),
        }
        began.get_or_insert_with(Instant::now);
    }
}
