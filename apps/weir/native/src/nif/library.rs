//! Loads the library, takes over from an earlier version, and flushes output when the VM ends.
//!
//! Sockets, pollsets, groups and relays are statics. When the VM loads the module again, it loads
//! either another file, with statics of its own, or the same file, with the statics that it had.
//! In both cases the module must use the existing values. So the first library of the process
//! publishes the addresses of its statics ([`Handover`]) under a symbol that later libraries look
//! up. The private data of the module would not do: a purge of the module frees it, while sockets
//! live on.
//!
//! A later library takes the statics over if none of their types has changed, which [`layout`]
//! tells. Otherwise it is refused, and the VM keeps the module that it has. No library is ever
//! unmapped: a call may be running in its code, and the statics are in its data.

use std::ffi::{CStr, c_int, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use rustler::codegen_runtime::{ErlNifEntry, ErlNifFunc, internal_write_symbols, inventory};
use rustler::sys::{ErlNifEnv, ErlNifTerm};

use super::listener::{LISTENER, ListenerReference};
use super::relay::{LATENCY, LatencyReference};
use super::schedules::SCHEDULES;
use crate::poll::death;
use crate::pollset;
use crate::pollset::online;
use crate::pollset::private::{self, Holder};
use crate::relay;
use crate::socket::file::{FILE, FileReference};
use crate::socket::owner::DeathWatch;
use crate::socket::table;
use crate::term::data::{self, Bytes};
use crate::term::resource;
use crate::value::latency;
use crate::value::panics;
use crate::value::shared::Inherited;
use crate::verb::{accept, group, halt};

/// All statics that later libraries take over.
static PARTS: [&dyn Inherited; 17] = [
    &table::SOCKETS,
    &group::ALL,
    &relay::RELAYS,
    &pollset::ALL,
    &online::ONLINE,
    &private::ABANDONED,
    &private::VACANT,
    &accept::EXHAUSTED,
    &latency::WANTED,
    &panics::PANICS,
    &SCHEDULES,
    &death::WATCH,
    &private::HOLDER,
    &data::BYTES,
    &LISTENER,
    &LATENCY,
    &FILE,
];

/// Increment this when something in these statics changes its meaning but not its type.
const MEANING: u64 = 1;

/// Addresses of the statics of the first library. The first two fields are the same in all
/// versions.
#[repr(C)]
pub struct Handover {
    layout: u64,
    count: usize,
    parts: [*const (); PARTS.len()],
}

// SAFETY: it is never written to, and its pointers are to `Sync` values.
unsafe impl Sync for Handover {}
// SAFETY: as above.
unsafe impl Send for Handover {}

static HANDOVER: OnceLock<Handover> = OnceLock::new();

/// Returns the addresses of the statics that this library uses.
///
/// The number in the name is the version of the first fields of [`Handover`].
#[unsafe(no_mangle)]
extern "C" fn weir_nif_handover_1() -> *const Handover {
    HANDOVER.get_or_init(|| Handover { layout: layout(), count: PARTS.len(), parts: PARTS.map(|part| part.address()) })
}

const HANDOVER_SYMBOL: &CStr = c"weir_nif_handover_1";

/// A fingerprint of all types of the source, after a fixed text by which tests find it in the
/// file.
static TYPES: &str = concat!("weir types ", env!("WEIR_TYPES"));

/// A fingerprint of what two libraries must have in common: the compiler, all types of the source
/// and of the dependencies (see `build.rs`), and the layouts, which only the compiler knows.
fn layout() -> u64 {
    let mut hasher = DefaultHasher::new();
    (MEANING, TYPES).hash(&mut hasher);
    for part in PARTS {
        part.layout().hash(&mut hasher);
    }
    hasher.finish()
}

/// Why a library is refused, as the error number of `erlang:load_nif/2`, which `weir_nif`
/// explains.
enum Refused {
    Resources = 1,
    Layout = 2,
    Pin = 3,
}

/// Entry point: the VM calls it after it has loaded the file.
#[unsafe(no_mangle)]
extern "C" fn nif_init() -> *const ErlNifEntry {
    struct Entry(ErlNifEntry);
    // SAFETY: it is never written to, and its pointers are to constants.
    unsafe impl Sync for Entry {}
    // SAFETY: as above.
    unsafe impl Send for Entry {}
    static ENTRY: OnceLock<Entry> = OnceLock::new();
    let entry = ENTRY.get_or_init(|| {
        // SAFETY: no function of the VM has been called through this library yet.
        unsafe { internal_write_symbols() };
        let functions: Vec<ErlNifFunc> = inventory::iter::<rustler::Nif>().map(rustler::Nif::get_def).collect();
        let mut entry = ErlNifEntry::new(c"weir_nif", functions.leak(), load);
        entry.upgrade = Some(upgrade);
        Entry(entry)
    });
    &entry.0
}

/// Called when the module has no library: at the first load, or after the module was purged.
unsafe extern "C" fn load(env: *mut ErlNifEnv, _data: *mut *mut c_void, _info: ErlNifTerm) -> c_int {
    begin(env)
}

/// Called when the module already has a library, which this one replaces.
unsafe extern "C" fn upgrade(
    env: *mut ErlNifEnv,
    _data: *mut *mut c_void,
    _old_data: *mut *mut c_void,
    _info: ErlNifTerm,
) -> c_int {
    begin(env)
}

fn begin(env: *mut ErlNifEnv) -> c_int {
    let begun = std::panic::catch_unwind(|| take_over().and_then(|()| open_resources(env)));
    match begun {
        Ok(Ok(())) => {
            panics::watch();
            flush_at_halt(env);
            0
        }
        Ok(Err(refused)) => refused as c_int,
        Err(_) => -1,
    }
}

/// Takes over the statics of the first library, unless this is the first.
fn take_over() -> Result<(), Refused> {
    let ours = weir_nif_handover_1();
    let Some(first) = first_handover() else { return pin(libc::RTLD_GLOBAL) };
    if std::ptr::eq(first, ours) {
        return pin(libc::RTLD_GLOBAL);
    }
    // SAFETY: libraries are never unmapped, and the first fields are the same in all versions.
    let (layout, count) = unsafe { ((*first).layout, (*first).count) };
    // SAFETY: ours is a static.
    if layout != unsafe { (*ours).layout } || count != PARTS.len() {
        return Err(Refused::Layout);
    }
    pin(0)?;
    for (at, part) in PARTS.iter().enumerate() {
        // SAFETY: equal layouts mean equal parts, and no function of this library has been called
        // yet.
        unsafe { part.take_over((*first).parts[at]) };
    }
    Ok(())
}

/// Returns the handover of the first library of the process. A library finds its own if no earlier
/// one has made its symbols global.
fn first_handover() -> Option<*const Handover> {
    // SAFETY: the name is a C string.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, HANDOVER_SYMBOL.as_ptr()) };
    if symbol.is_null() {
        return None;
    }
    // SAFETY: only this function has this name.
    let handover = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> *const Handover>(symbol) };
    Some(handover())
}

/// Keeps this library mapped until the process ends.
fn pin(visibility: c_int) -> Result<(), Refused> {
    let mut about =
        libc::Dl_info { dli_fname: null(), dli_fbase: null_mut(), dli_sname: null(), dli_saddr: null_mut() };
    // SAFETY: the address is in this library, whose name stays valid while it is mapped.
    let pinned = unsafe {
        libc::dladdr(weir_nif_handover_1 as *const c_void, &mut about) != 0
            && !libc::dlopen(about.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE | visibility)
                .is_null()
    };
    if pinned { Ok(()) } else { Err(Refused::Pin) }
}

fn open_resources(env: *mut ErlNifEnv) -> Result<(), Refused> {
    // SAFETY: only `load` and `upgrade` call this.
    let opened = unsafe {
        resource::open::<DeathWatch>(env)
            && resource::open::<Holder>(env)
            && resource::open::<Bytes>(env)
            && resource::open::<ListenerReference>(env)
            && resource::open::<LatencyReference>(env)
            && resource::open::<FileReference>(env)
    };
    if opened { Ok(()) } else { Err(Refused::Resources) }
}

type SetOption = unsafe extern "C" fn(*mut ErlNifEnv, c_int, ...) -> c_int;

/// `ERL_NIF_OPT_ON_HALT`, since OTP 26.
const ON_HALT: c_int = 2;

/// Arranges that queued output is sent when the VM halts. Since OTP 26 the VM calls libraries that
/// ask for it, unless it halts without flushing. Before OTP 26, atexit(3) is used, which runs for
/// any exit of the process.
fn flush_at_halt(env: *mut ErlNifEnv) {
    // SAFETY: the name is a C string.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"enif_set_option".as_ptr()) };
    if symbol.is_null() {
        static REGISTERED: OnceLock<c_int> = OnceLock::new();
        // SAFETY: the function lives as long as the process, since the library is pinned.
        REGISTERED.get_or_init(|| unsafe { libc::atexit(on_exit) });
        return;
    }
    // SAFETY: only this function of the VM has this name, and the environment is that of `load` or
    // `upgrade`.
    unsafe {
        let set_option = std::mem::transmute::<*mut c_void, SetOption>(symbol);
        set_option(env, ON_HALT, on_halt as unsafe extern "C" fn(*mut c_void));
    }
}

unsafe extern "C" fn on_halt(_data: *mut c_void) {
    let _ = std::panic::catch_unwind(halt::flush);
}

extern "C" fn on_exit() {
    let _ = std::panic::catch_unwind(halt::flush);
}

/// Returns true. The Erlang function that it replaces cannot, so this tells whether the library of
/// the calling module is loaded.
#[rustler::nif]
fn loaded() -> bool {
    true
}
