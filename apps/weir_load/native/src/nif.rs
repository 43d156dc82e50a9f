//! The boundary to Erlang: decodes, locks, calls. Raises `badarg` for wrong arguments.

use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustler::schedule::consume_timeslice;
use rustler::{Atom, Binary, Env, Error, LocalPid, NewBinary, NifResult, Resource, ResourceArc, Term, resource_impl};

use crate::alarm::Alarm;
use crate::latencies::{LONGEST, Latencies};
use crate::tls::{self, Received, Session, Settings, Trust};

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
fn record_some(histogram: Histogram, values: Vec<u64>) -> NifResult<Atom> {
    if values.len() > MOST {
        return Err(Error::BadArg);
    }
    let mut latencies = lock(&histogram);
    values.into_iter().for_each(|value| latencies.record(value));
    Ok(rustler::types::atom::ok())
}

#[rustler::nif(schedule = "DirtyCpu")]
fn merge(histogram: Histogram, other: Histogram) -> Atom {
    // Copy instead of holding two locks: they could be taken in either order, or be the same lock.
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
    bytes(env, &lock(&histogram).serialise())
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
fn alarm_set(alarm: ResourceArc<AlarmResource>, nanoseconds: u64) -> NifResult<Atom> {
    if nanoseconds > LONGEST {
        return Err(Error::BadArg);
    }
    alarm.0.set(Duration::from_nanos(nanoseconds));
    Ok(rustler::types::atom::ok())
}

type TlsSettings = ResourceArc<SettingsResource>;
type TlsSession = ResourceArc<SessionResource>;

/// Asserted, because the compiler cannot derive it for `dyn` verifiers: encoding a handle does not
/// touch the settings.
struct SettingsResource(AssertUnwindSafe<Settings>);
struct SessionResource(Mutex<Session>);

#[resource_impl]
impl Resource for SettingsResource {}

#[resource_impl]
impl Resource for SessionResource {}

mod atoms {
    rustler::atoms! { anybody, tls_alert, tls_certificate, tls_error }
}

fn bytes<'a>(env: Env<'a>, bytes: &[u8]) -> Binary<'a> {
    let mut binary = NewBinary::new(env, bytes.len());
    binary.as_mut_slice().copy_from_slice(bytes);
    binary.into()
}

/// The kind of an error, and its text.
fn failure(error: &rustls::Error) -> (Atom, String) {
    let kind = match tls::kind(error) {
        "tls_certificate" => atoms::tls_certificate(),
        "tls_alert" => atoms::tls_alert(),
        _ => atoms::tls_error(),
    };
    (kind, tls::text(error))
}

#[rustler::nif(schedule = "DirtyCpu")]
fn tls_settings(trust: Term, protocols: Vec<Binary>) -> NifResult<(Atom, TlsSettings)> {
    let roots;
    let trust = match trust.decode::<Vec<Binary>>() {
        Ok(binaries) => {
            roots = binaries;
            Trust::Roots(roots.iter().map(Binary::as_slice).collect())
        }
        Err(_) if trust.decode::<Atom>()? == atoms::anybody() => Trust::Anybody,
        Err(error) => return Err(error),
    };
    let protocols = protocols.iter().map(|protocol| protocol.as_slice().to_vec()).collect();
    let settings = Settings::new(trust, protocols).map_err(|error| Error::Term(Box::new(failure(&error))))?;
    Ok((rustler::types::atom::ok(), ResourceArc::new(SettingsResource(AssertUnwindSafe(settings)))))
}

#[rustler::nif]
fn tls_connect<'a>(
    env: Env<'a>,
    settings: TlsSettings,
    server: &str,
) -> Result<(TlsSession, Binary<'a>), (Atom, String)> {
    let (session, hello) = Session::new(&settings.0, server).map_err(|error| failure(&error))?;
    Ok((ResourceArc::new(SessionResource(Mutex::new(session))), bytes(env, &hello)))
}

#[rustler::nif]
fn tls_is_handshaking(session: TlsSession) -> bool {
    session.0.lock().unwrap_or_else(PoisonError::into_inner).is_handshaking()
}

#[rustler::nif]
fn tls_send<'a>(env: Env<'a>, session: TlsSession, plain: Binary) -> Result<Binary<'a>, (Atom, String)> {
    let cipher = session.0.lock().unwrap_or_else(PoisonError::into_inner).send(plain.as_slice());
    consume(env, plain.len());
    Ok(bytes(env, &cipher.map_err(|error| failure(&error))?))
}

#[rustler::nif]
fn tls_received<'a>(
    env: Env<'a>,
    session: TlsSession,
    cipher: Binary,
) -> Result<(Binary<'a>, Binary<'a>), (Atom, String)> {
    let mut session = session.0.lock().unwrap_or_else(PoisonError::into_inner);
    // A handshake takes two operations with keys: about a third of a millisecond.
    let work = if session.is_handshaking() { A_TIME_SLICE / 3 } else { cipher.len() };
    let received = session.received(cipher.as_slice());
    consume(env, work);
    let Received { plain, reply } = received.map_err(|error| failure(&error))?;
    Ok((bytes(env, &plain), bytes(env, &reply)))
}

/// About how many bytes are encrypted or decrypted in a millisecond.
const A_TIME_SLICE: usize = 1 << 20;

fn consume(env: Env, work: usize) {
    let percent = (work.saturating_mul(100) / A_TIME_SLICE).clamp(1, 100);
    let _ = consume_timeslice(env, i32::try_from(percent).unwrap_or(100));
}
