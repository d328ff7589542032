//! Words of a command line: positions, and options as `--name value` or `--name` alone.

use std::str::FromStr;

use crate::Failure;

/// The words after a program's name that nobody has taken yet.
pub struct Arguments(Vec<String>);

impl Arguments {
    /// Of this process.
    pub fn from_process() -> Self {
        Self(std::env::args().skip(1).collect())
    }

    /// The value after an option, else the default; both are taken.
    ///
    /// # Errors
    /// There is no value, or it is not of its kind.
    pub fn value<T: FromStr>(&mut self, option: &str, default: T) -> Result<T, Failure> {
        let Some(at) = self.0.iter().position(|word| word == option) else { return Ok(default) };
        if at + 1 >= self.0.len() {
            return Err(format!("{option} wants a value"));
        }
        let word = self.0.drain(at..at + 2).nth(1).unwrap_or_default();
        word.parse().map_err(|_| format!("{option} {word}: not a value it can have"))
    }

    /// Whether an option stands there alone; it is taken.
    pub fn flag(&mut self, option: &str) -> bool {
        let found = self.0.iter().position(|word| word == option);
        found.map(|at| self.0.remove(at)).is_some()
    }

    /// What is left, which must be as many words as wanted.
    ///
    /// # Errors
    /// More, fewer, or an option that nobody knows.
    pub fn rest<const N: usize>(self) -> Result<[String; N], Failure> {
        let words = self.0.join(" ");
        self.0.try_into().ok().filter(|_| !words.contains("--")).ok_or_else(|| format!("cannot make sense of '{words}'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Arguments {
        Arguments(line.split(' ').map(str::to_owned).collect())
    }

    #[test]
    fn options_are_taken_wherever_they_stand() {
        let mut some = words("run --streams 4 here --both 7000");
        assert_eq!((some.value("--streams", 1), some.value("--seconds", 2.5)), (Ok(4), Ok(2.5)));
        assert!(some.flag("--both") && !some.flag("--both"));
        assert_eq!(some.rest(), Ok(["run", "here", "7000"].map(str::to_owned)));
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        assert_eq!(words("run --streams").value("--streams", 1), Err("--streams wants a value".to_owned()));
        assert_eq!(words("--streams many").value("--streams", 1), Err("--streams many: not a value it can have".to_owned()));
        assert_eq!(words("run --what").rest::<2>(), Err("cannot make sense of 'run --what'".to_owned()));
        assert!(words("run").rest::<2>().is_err());
    }
}
