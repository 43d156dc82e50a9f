//! Parses a document into values with their lines.

use std::borrow::Cow;
use std::ops::Range;
use std::thread;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// How deep values may nest. A limit, because the code below recurses.
const DEPTH: usize = 80;

/// Bytes of stack for the parser's thread. The parser limits brackets, braces and parts of a key
/// to 80 each, so values may nest as deep as the product. Dropping them recurses, which needs more
/// stack than a dirty scheduler has.
const STACK: usize = 16 * 1024 * 1024;

/// What is wrong with a document, and where.
#[derive(Debug, PartialEq)]
pub struct Fault {
    pub line: usize,
    pub text: String,
}

#[derive(Debug, PartialEq)]
pub enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    /// A date, a time or both, as written.
    Moment(String),
    Array(Vec<Located>),
    Table(Vec<Entry>),
}

/// A value and the line where it begins.
#[derive(Debug, PartialEq)]
pub struct Located {
    pub line: usize,
    pub value: Value,
}

/// A key of a table, its line, and its value.
#[derive(Debug, PartialEq)]
pub struct Entry {
    pub key: String,
    pub line: usize,
    pub value: Located,
}

/// A step from a value to one inside it.
pub enum Step {
    Key(String),
    /// Starts at 1, as lists in Erlang do.
    Index(usize),
}

/// The offsets of the line feeds in a text.
struct Lines<'t> {
    text: &'t str,
    ends: Vec<usize>,
}

impl<'t> Lines<'t> {
    fn new(text: &'t str) -> Self {
        Lines { text, ends: text.match_indices('\n').map(|(at, _)| at).collect() }
    }

    fn at(&self, offset: usize) -> usize {
        // An error at the end of the document is in its last line that is not empty.
        let last = self.text.trim_end().len();
        self.ends.partition_point(|end| *end < offset.min(last)) + 1
    }

    fn of<T>(&self, spanned: &Spanned<T>) -> usize {
        self.at(spanned.span().start)
    }
}

/// Parses a document.
pub fn parse(bytes: &[u8]) -> Result<Located, Fault> {
    thread::scope(|scope| {
        let reader = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || read(bytes));
        match reader.map(|reader| reader.join()) {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => Err(Fault { line: 1, text: format!("no thread to read it in: {error}") }),
        }
    })
}

fn read(bytes: &[u8]) -> Result<Located, Fault> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
            return Err(Fault { line, text: "not UTF-8".into() });
        }
    };
    let lines = Lines::new(text);
    match DeTable::parse(text) {
        Ok(table) => Ok(Located { line: 1, value: Value::Table(entries(table.get_ref(), &lines, DEPTH)?) }),
        Err(error) => {
            let span = error.span().unwrap_or(0..0);
            let found = excerpt(text, &span);
            Err(Fault { line: lines.at(span.start), text: format!("{}{found}", error.message().replace('\n', ", ")) })
        }
    }
}

/// The text that a fault is about, if it is short.
fn excerpt<'t>(text: &'t str, span: &Range<usize>) -> Cow<'t, str> {
    match text.get(span.clone()) {
        Some(part) if !part.trim().is_empty() && part.len() <= 60 && !part.contains('\n') => {
            format!(": {}", part.trim()).into()
        }
        _ => "".into(),
    }
}

fn entries(table: &DeTable, lines: &Lines, depth: usize) -> Result<Vec<Entry>, Fault> {
    table
        .iter()
        .map(|(key, value)| {
            Ok(Entry { key: key.get_ref().to_string(), line: lines.of(key), value: located(value, lines, depth)? })
        })
        .collect()
}

fn located(value: &Spanned<DeValue>, lines: &Lines, depth: usize) -> Result<Located, Fault> {
    let line = lines.of(value);
    let Some(depth) = depth.checked_sub(1) else {
        return Err(Fault { line, text: format!("nested deeper than {DEPTH}") });
    };
    let fault = |text: &str, written: &str| Fault { line, text: format!("{text}: {written}") };
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Integer(number),
            Err(_) => return Err(fault("integer of more than 64 bits", number.as_str())),
        },
        DeValue::Float(number) => match number.as_str().parse::<f64>() {
            Ok(finite) if finite.is_finite() => Value::Float(finite),
            _ => return Err(fault("number that is not finite", number.as_str())),
        },
        DeValue::Boolean(boolean) => Value::Boolean(*boolean),
        DeValue::Datetime(moment) => Value::Moment(moment.to_string()),
        DeValue::Array(array) => {
            Value::Array(array.iter().map(|value| located(value, lines, depth)).collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => Value::Table(entries(table, lines, depth)?),
    };
    Ok(Located { line, value })
}

/// Returns the line of the value at a path, or of the last step that exists.
pub fn line(document: &Located, path: &[Step]) -> usize {
    let mut line = document.line;
    let mut value = &document.value;
    for step in path {
        let next = match (step, value) {
            (Step::Key(key), Value::Table(entries)) => {
                entries.iter().find(|entry| entry.key == *key).map(|entry| (entry.line, &entry.value))
            }
            (Step::Index(index), Value::Array(values)) => {
                index.checked_sub(1).and_then(|index| values.get(index)).map(|value| (value.line, value))
            }
            _ => None,
        };
        let Some((found, inner)) = next else { break };
        line = found;
        value = &inner.value;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# first\nport = 80\n\n[limits]\nbytes = 0x10\n\n[[channels]]\npattern = 'a'\n\n\
        [[channels]]\npattern = 'b'\nlist = [\n  1.5,\n  true,\n]\n[a.b]\nc.d = 1979-05-27\n";

    fn at(path: Vec<Step>) -> usize {
        line(&parse(TEXT.as_bytes()).expect("valid"), &path)
    }

    fn key(key: &str) -> Step {
        Step::Key(key.into())
    }

    #[test]
    fn keys_have_lines() {
        assert_eq!(at(vec![key("port")]), 2);
        assert_eq!(at(vec![key("limits")]), 4);
        assert_eq!(at(vec![key("limits"), key("bytes")]), 5);
        assert_eq!(at(vec![key("channels"), Step::Index(1)]), 7);
        assert_eq!(at(vec![key("channels"), Step::Index(2)]), 10);
        assert_eq!(at(vec![key("channels"), Step::Index(2), key("pattern")]), 11);
        assert_eq!(at(vec![key("channels"), Step::Index(2), key("list"), Step::Index(2)]), 14);
        assert_eq!(at(vec![key("a"), key("b"), key("c"), key("d")]), 17);
    }

    #[test]
    fn a_path_that_ends_early_has_the_line_of_its_last_step() {
        assert_eq!(at(vec![]), 1);
        assert_eq!(at(vec![key("nothing")]), 1);
        assert_eq!(at(vec![key("limits"), key("nothing"), key("more")]), 4);
        assert_eq!(at(vec![key("channels"), Step::Index(0)]), 7);
        assert_eq!(at(vec![key("channels"), Step::Index(2), key("missing")]), 10);
    }

    #[test]
    fn faults_have_lines() {
        let fault = |text: &[u8]| parse(text).expect_err("invalid");
        assert_eq!(fault(b"a = 1\nb = \xff\n"), Fault { line: 2, text: "not UTF-8".into() });
        assert_eq!(fault(b"a = 1\n\na = 2\n").line, 3);
        assert_eq!(fault(b"\n\nb = 99999999999999999999\n").line, 3);
        assert_eq!(fault(b"b = inf\n"), Fault { line: 1, text: "number that is not finite: inf".into() });
        assert_eq!(fault(b"x = 1\na = [1,\n\n\n").line, 2);
    }

    #[test]
    fn nothing_nests_deep() {
        let many = 200_000;
        for text in [
            format!("a = {}", "[".repeat(many)),
            format!("a = {}", "{a=".repeat(many)),
            format!("a{} = 1", ".a".repeat(many)),
            format!("[a{}]", ".a".repeat(many)),
            format!("[[a{}]]", ".a".repeat(many)),
            format!("a = {}", format!("{{a{} = ", ".a".repeat(78)).repeat(79)) + "1" + &"}".repeat(79),
            (0..many).map(|depth| format!("[[a{}]]\n", ".a".repeat(depth % 100))).collect(),
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{}", &text[..20]);
        }
    }
}
