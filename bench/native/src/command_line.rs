//! The parts of the command line that both programs share: numbers, durations, failures and exit
//! codes.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::time::Duration;

/// Why a program ends before its work is done.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// A wrong argument: exit code 2.
    Usage(String),
    /// The arguments were right, but the system or the peer refused: exit code 1.
    Runtime(String),
}

impl Failure {
    /// A runtime failure: the action that failed, and the reason.
    pub fn runtime(what: impl Display, why: impl Display) -> Self {
        Self::Runtime(format!("{what}: {why}"))
    }
}

impl From<lexopt::Error> for Failure {
    fn from(error: lexopt::Error) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Runtime(error.to_string())
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Runtime(errno.to_string())
    }
}

/// Runs a program and turns a failure into one line on standard error and its exit code.
pub fn run(program: &str, main: impl FnOnce() -> Result<(), Failure>) -> ExitCode {
    match main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            eprintln!("{program}: {message} (try {program} --help)");
            ExitCode::from(2)
        }
        Err(Failure::Runtime(message)) => {
            eprintln!("{program}: {message}");
            ExitCode::from(1)
        }
    }
}

/// Prints a line on standard output and flushes it, so that a program waiting on a pipe gets it at
/// once.
pub fn print(line: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|error| Failure::runtime("cannot write to standard output", error))
}

/// The whole number of an option, checked against the allowed range.
pub fn number(option: &str, value: OsString, allowed: RangeInclusive<u64>) -> Result<u64, Failure> {
    let text = text(option, value)?;
    match text.parse() {
        Ok(number) if allowed.contains(&number) => Ok(number),
        _ => Err(Failure::Usage(format!(
            "{option} {text}: a whole number from {} to {} is needed",
            allowed.start(),
            allowed.end()
        ))),
    }
}

/// A duration such as `500ms`, `3s`, `1.5s` or `2m`, of at most a day.
pub fn duration(option: &str, value: OsString) -> Result<Duration, Failure> {
    const DAY: f64 = 86_400.0;
    let text = text(option, value)?;
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (amount, unit) = text.split_at(split);
    let unit = match unit {
        "ms" => Some(0.001),
        "s" => Some(1.0),
        "m" => Some(60.0),
        _ => None,
    };
    match (amount.parse::<f64>(), unit) {
        (Ok(amount), Some(unit)) if amount * unit <= DAY => {
            Ok(Duration::from_secs_f64(amount * unit))
        }
        _ => Err(Failure::Usage(format!(
            "{option} {text}: a duration such as 500ms, 3s or 2m is needed, of at most a day"
        ))),
    }
}

/// The first address of `HOST:PORT`. Resolves names.
pub fn address(what: &str, value: OsString) -> Result<SocketAddr, Failure> {
    let text = text(what, value)?;
    let well_formed = text
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0));
    if !well_formed {
        return Err(Failure::Usage(format!(
            "{what} {text}: HOST:PORT is needed, such as 127.0.0.1:8080"
        )));
    }
    text.to_socket_addrs()
        .map_err(|error| Failure::runtime(format!("cannot resolve {text}"), error))?
        .next()
        .ok_or_else(|| Failure::runtime(format!("cannot resolve {text}"), "no address"))
}

/// The value of an option as text.
pub fn text(option: &str, value: OsString) -> Result<String, Failure> {
    value.into_string().map_err(|value| {
        Failure::Usage(format!(
            "{option} {}: the value is not UTF-8",
            value.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        let parse = |text: &str| duration("--duration", text.into());
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("3s"), Ok(Duration::from_secs(3)));
        assert_eq!(parse("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
        for wrong in [
            "", "3", "s", "-3s", "3h", "3 s", "1.2.3s", "1e9s", "inf", "2000m",
        ] {
            let Err(Failure::Usage(message)) = parse(wrong) else {
                panic!("{wrong:?} was taken for a duration");
            };
            assert!(message.starts_with(&format!("--duration {wrong}: ")));
        }
    }

    #[test]
    fn numbers_are_checked_against_what_is_allowed() {
        assert_eq!(number("--size", "8".into(), 8..=10), Ok(8));
        for wrong in ["7", "11", "", "-1", "1.5", "x"] {
            assert_eq!(
                number("--size", wrong.into(), 8..=10),
                Err(Failure::Usage(format!(
                    "--size {wrong}: a whole number from 8 to 10 is needed"
                )))
            );
        }
    }

    #[test]
    fn addresses_need_host_and_port() {
        let parse = |text: &str| address("--to", text.into());
        assert_eq!(parse("127.0.0.1:80"), Ok(([127, 0, 0, 1], 80).into()));
        assert_eq!(parse("[::1]:80").unwrap().port(), 80);
        for wrong in ["", "127.0.0.1", ":80", "127.0.0.1:0", "127.0.0.1:65536"] {
            assert!(matches!(parse(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }
}
