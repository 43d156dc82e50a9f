//! The boundary to Erlang. Raises `badarg` for wrong arguments and has no state. Both calls run on
//! dirty schedulers, because the largest document that `weir_toml` accepts takes many
//! milliseconds.

use rustler::types::map::map_new;
use rustler::{Binary, Encoder, Env, Error, ListIterator, NifResult, Term};

use crate::document::{self, Located, Step, Value};

mod atoms {
    rustler::atoms! { ok, error, line, moment }
}

#[rustler::nif(schedule = "DirtyCpu")]
fn decode<'a>(env: Env<'a>, bytes: Binary<'a>) -> NifResult<Term<'a>> {
    match document::parse(&bytes) {
        Ok(document) => Ok((atoms::ok(), term(env, &document)?).encode(env)),
        Err(fault) => Ok((atoms::error(), (atoms::line(), fault.line, fault.text)).encode(env)),
    }
}

#[rustler::nif(schedule = "DirtyCpu")]
fn line<'a>(bytes: Binary<'a>, path: Term<'a>) -> NifResult<usize> {
    // Refuse improper lists, at whose end ListIterator would panic.
    path.list_length()?;
    let path = path.decode::<ListIterator>()?.map(step).collect::<NifResult<Vec<Step>>>()?;
    Ok(match document::parse(&bytes) {
        Ok(document) => document::line(&document, &path),
        Err(fault) => fault.line,
    })
}

fn step(term: Term<'_>) -> NifResult<Step> {
    match term.decode::<usize>() {
        Ok(index) => Ok(Step::Index(index)),
        Err(_) => term.decode::<String>().map(Step::Key).map_err(|_| Error::BadArg),
    }
}

fn term<'a>(env: Env<'a>, located: &Located) -> NifResult<Term<'a>> {
    Ok(match &located.value {
        Value::Text(text) => text.encode(env),
        Value::Integer(number) => number.encode(env),
        Value::Float(number) => number.encode(env),
        Value::Boolean(boolean) => boolean.encode(env),
        Value::Moment(moment) => (atoms::moment(), moment).encode(env),
        Value::Array(values) => {
            values.iter().map(|value| term(env, value)).collect::<NifResult<Vec<Term>>>()?.encode(env)
        }
        Value::Table(entries) => {
            let mut keys = Vec::with_capacity(entries.len());
            let mut values = Vec::with_capacity(entries.len());
            for entry in entries {
                keys.push(entry.key.encode(env));
                values.push(term(env, &entry.value)?);
            }
            if keys.is_empty() { map_new(env) } else { Term::map_from_term_arrays(env, &keys, &values)? }
        }
    })
}
