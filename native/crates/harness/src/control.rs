//! Lines of text between the two processes of a measurement, on a connection of their own.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::str::FromStr;
use std::time::Duration;

use crate::{Failure, failed};

const LIMIT: Duration = Duration::from_secs(120);

/// One end of the connection.
pub struct Control(BufReader<TcpStream>);

impl Control {
    /// Use a connection that carries nothing else. Error: the system refuses its settings.
    pub fn over(stream: TcpStream) -> Result<Self, Failure> {
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(LIMIT)))
            .map_err(failed("control line"))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Send a line. Error: the other process is gone.
    pub fn send(&mut self, line: &str) -> Result<(), Failure> {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).map_err(failed("control line"))
    }

    /// Wait for a line. Error: the other process is gone, or sends nothing for two minutes.
    pub fn receive(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => Err("the other process has ended".to_owned()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(format!("control line: {error}")),
        }
    }

    /// Wait for a line with this many values. Error: as for `receive`, or the line holds something
    /// else.
    pub fn values<T: FromStr, const N: usize>(&mut self) -> Result<[T; N], Failure> {
        let line = self.receive()?;
        let values: Option<Vec<T>> = line.split(' ').map(|word| word.parse().ok()).collect();
        values
            .and_then(|values| values.try_into().ok())
            .ok_or_else(|| format!("unexpected line from the other process: {line}"))
    }

    /// A barrier: returns in both processes when both have called it. Error: as for `receive`.
    pub fn meet(&mut self) -> Result<(), Failure> {
        self.send("here")?;
        let line = self.receive()?;
        if line == "here" {
            Ok(())
        } else {
            Err(format!("unexpected line from the other process: {line}"))
        }
    }
}
