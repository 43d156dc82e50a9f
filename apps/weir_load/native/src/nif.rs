//! The boundary: decodes, locks, calls. A wrong argument is a `badarg`.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustler::{Binary, Env, Error, LocalPid, NewBinary, NifResult, Resource, ResourceArc, resource_impl};

use crate::alarm::Alarm;
use crate::latencies::{LONGEST, Latencies};

/// Most values or percentiles in one call, which keeps it well under a millisecond.
const MOST: usize = 4096;

struct HistogramResource(Mutex<Latencies>);
struct AlarmResource(Alarm);

#[resource_impl]
impl Resource for HistogramResource {}

#[resource_impl]
impl Resource for AlarmResource {}

type Histogram = ResourceArc<HistogramResource>;

fn lock(histogram: &Histogram) -> MutexGuard<'_, Latencies> {
    histogram.0.lock().unwrap_or_else(PoisonError::into_inner)
}

fn resource(latencies: Latencies) -> Histogram {
    ResourceArc::new(HistogramResource(Mutex::new(latencies)))
}

#[rustler::nif]
fn new() -> Histogram {
    resource(Latencies::new())
}

#[rustler::nif]
fn record_some(histogram: Histogram, values: Vec<u64>) -> NifResult<rustler::Atom> {
    if values.len() > MOST {
        return Err(Error::BadArg);
    }
    let mut latencies = lock(&histogram);
    values.into_iter().for_each(|value| latencies.record(value));
    Ok(rustler::types::atom::ok())
}

#[rustler::nif(schedule = "DirtyCpu")]
fn merge(histogram: Histogram, other: Histogram) -> rustler::Atom {
    // A copy, since two locks at a time could be taken in either order; and since both may be the same.
    let added = lock(&other).clone();
    lock(&histogram).merge(&added);
    rustler::types::atom::ok()
}

#[rustler::nif(schedule = "DirtyCpu")]
fn percentiles(histogram: Histogram, at: Vec<f64>) -> NifResult<Vec<u64>> {
    if at.len() > MOST || at.iter().any(|percentile| !(0.0..=100.0).contains(percentile)) {
        return Err(Error::BadArg);
    }
    let latencies = lock(&histogram);
    Ok(at.into_iter().map(|percentile| latencies.percentile(percentile)).collect())
}

#[rustler::nif(schedule = "DirtyCpu")]
fn summary(histogram: Histogram) -> (u64, u64, u64, f64, f64) {
    let it = lock(&histogram).summary();
    (it.count, it.min, it.max, it.mean, it.stdev)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn serialise<'a>(env: Env<'a>, histogram: Histogram) -> Binary<'a> {
    let bytes = lock(&histogram).serialise();
    let mut binary = NewBinary::new(env, bytes.len());
    binary.as_mut_slice().copy_from_slice(&bytes);
    binary.into()
}

#[rustler::nif(schedule = "DirtyCpu")]
fn deserialise(bytes: Binary) -> NifResult<Histogram> {
    Latencies::deserialise(bytes.as_slice()).map(resource).map_err(|_| Error::BadArg)
}

#[rustler::nif]
fn alarm_start(env: Env) -> NifResult<ResourceArc<AlarmResource>> {
    let pid: LocalPid = env.pid();
    let alarm = Alarm::start(pid).map_err(|error| Error::Term(Box::new(error.to_string())))?;
    Ok(ResourceArc::new(AlarmResource(alarm)))
}

#[rustler::nif]
fn alarm_set(alarm: ResourceArc<AlarmResource>, nanoseconds: u64) -> NifResult<rustler::Atom> {
    if nanoseconds > LONGEST {
        return Err(Error::BadArg);
    }
    alarm.0.set(Duration::from_nanos(nanoseconds));
    Ok(rustler::types::atom::ok())
}
