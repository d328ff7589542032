//! Command-line arguments: positional ones, and options as `--name value` or `--name`.

use std::str::FromStr;

use crate::Failure;

/// The arguments that have not been consumed.
pub struct Arguments(Vec<String>);

impl Arguments {
    /// The arguments of this process.
    pub fn from_process() -> Self {
        Self(std::env::args().skip(1).collect())
    }

    /// Consume an option and its value; the default if the option is absent. Error: the value is
    /// missing or has the wrong type.
    pub fn value<T: FromStr>(&mut self, option: &str, default: T) -> Result<T, Failure> {
        let Some(at) = self.0.iter().position(|word| word == option) else { return Ok(default) };
        if at + 1 >= self.0.len() {
            return Err(format!("{option} needs a value"));
        }
        let word = self.0.drain(at..at + 2).nth(1).unwrap_or_default();
        word.parse().map_err(|_| format!("{option} {word}: invalid value"))
    }

    /// Consume an option without a value; returns whether it was there.
    pub fn flag(&mut self, option: &str) -> bool {
        let found = self.0.iter().position(|word| word == option);
        found.map(|at| self.0.remove(at)).is_some()
    }

    /// The positional arguments that are left. Error: there are more or fewer, or an unknown
    /// option.
    pub fn rest<const N: usize>(self) -> Result<[String; N], Failure> {
        let arguments = self.0.join(" ");
        self.0
            .try_into()
            .ok()
            .filter(|_| !arguments.contains("--"))
            .ok_or_else(|| format!("unexpected arguments: '{arguments}'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Arguments {
        Arguments(line.split(' ').map(str::to_owned).collect())
    }

    #[test]
    fn options_are_consumed_in_any_position() {
        let mut some = arguments("run --streams 4 here --both 7000");
        assert_eq!((some.value("--streams", 1), some.value("--seconds", 2.5)), (Ok(4), Ok(2.5)));
        assert!(some.flag("--both") && !some.flag("--both"));
        assert_eq!(some.rest(), Ok(["run", "here", "7000"].map(str::to_owned)));
    }

    #[test]
    fn invalid_arguments_are_errors() {
        assert_eq!(
            arguments("run --streams").value("--streams", 1),
            Err("--streams needs a value".to_owned())
        );
        assert_eq!(
            arguments("--streams many").value("--streams", 1),
            Err("--streams many: invalid value".to_owned())
        );
        assert_eq!(
            arguments("run --what").rest::<2>(),
            Err("unexpected arguments: 'run --what'".to_owned())
        );
        assert!(arguments("run").rest::<2>().is_err());
    }
}
