//! What a user wants collectives to run with: BUSBW_TUNER_TABLE names a file with a line for each function and size.

use std::collections::HashMap;
use std::env;
use std::ffi::c_int;
use std::fs;
use std::path::Path;

use transport::{Error, Kind, Level};

use crate::logger;

const VARIABLE: &str = "BUSBW_TUNER_TABLE";

/// Algorithm and protocol, as rows and columns of NCCL's cost table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Row.
    pub algorithm: usize,
    /// Column.
    pub protocol: usize,
}

/// The lines for communicators of one size, by function and bytes.
#[derive(Debug, Default)]
pub struct Table(HashMap<(c_int, usize), Wanted>);

impl Table {
    /// The table that the environment names, for communicators of `ranks`. Empty without one, or with one that cannot be read, of which a
    /// warning says why: NCCL then chooses itself.
    pub fn of_environment(ranks: usize) -> Self {
        let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) else { return Self::default() };
        Self::read(Path::new(&path), ranks).unwrap_or_else(|error| {
            logger::say(Level::Warn, &format!("{VARIABLE}={}: {error}; NCCL chooses", path.to_string_lossy()));
            Self::default()
        })
    }

    /// A file of lines `RANKS FUNCTION BYTES ALGORITHM PROTOCOL`, all in NCCL's numbers. Empty lines and those with `#` say nothing.
    ///
    /// # Errors
    /// The file cannot be read, or a line is none.
    pub fn read(path: &Path, ranks: usize) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|error| Error::new(Kind::Usage, error.to_string()))?;
        Self::parse(&text, ranks)
    }

    /// The same of a text.
    ///
    /// # Errors
    /// A line has not five numbers.
    pub fn parse(text: &str, ranks: usize) -> Result<Self, Error> {
        let mut table = HashMap::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#')) {
            let numbers: Option<Vec<usize>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
            let Some(&[of_ranks, function, bytes, algorithm, protocol]) = numbers.as_deref() else {
                return Err(Error::new(Kind::Usage, format!("line {} has not five numbers: {line}", number + 1)));
            };
            if of_ranks == ranks {
                let function = c_int::try_from(function).unwrap_or(c_int::MAX);
                table.insert((function, bytes), Wanted { algorithm, protocol });
            }
        }
        Ok(Self(table))
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What a collective should run with.
    pub fn wanted(&self, function: c_int, bytes: usize) -> Option<Wanted> {
        self.0.get(&(function, bytes)).copied()
    }
}
