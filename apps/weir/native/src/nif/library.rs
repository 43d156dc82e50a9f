//! The library as the VM sees it: how it is loaded, how it takes over from an earlier version of itself, and what it does
//! when the VM ends.
//!
//! Sockets, pollsets, groups and relays are statics. When the VM loads the module again it may load another file, with
//! statics of its own, or the same file again, with those that it had. Either way all of them have to be the values that
//! are in use. So the first library of the process tells later ones where its statics are ([`Handover`]), by a symbol
//! that they find in the process. Private data of the module would be gone with a purge of the module, while sockets
//! are not.
//!
//! A later library takes them over if all types in them are what they were: [`layout`] says so. If not it is refused, and
//! the VM goes on with the module that it has. No library is ever unmapped: a call may be in its code, and the statics are
//! in its data.

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

/// All statics that later libraries go on with.
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

/// To be raised when something in those statics gets another meaning without getting another type.
const MEANING: u64 = 1;

/// Where the statics of the first library are. The first two words are the same in all versions.
#[repr(C)]
pub struct Handover {
    layout: u64,
    count: usize,
    parts: [*const (); PARTS.len()],
}

// SAFETY: it is never written to, and what it points to is Sync.
unsafe impl Sync for Handover {}
// SAFETY: as above.
unsafe impl Send for Handover {}

static HANDOVER: OnceLock<Handover> = OnceLock::new();

/// Where the statics that this library uses are.
///
/// The name says which version of the beginning of [`Handover`] it is.
#[unsafe(no_mangle)]
extern "C" fn weir_nif_handover_1() -> *const Handover {
    HANDOVER.get_or_init(|| Handover { layout: layout(), count: PARTS.len(), parts: PARTS.map(|part| part.address()) })
}

const HANDOVER_SYMBOL: &CStr = c"weir_nif_handover_1";

/// All types of the source, as a number. With a word before it, for the tests to find it in the file.
static TYPES: &str = concat!("weir types ", env!("WEIR_TYPES"));

/// What two libraries must have in common: the compiler, all types of the source and of the libraries below (see
/// `build.rs`), and what of the types only the compiler knows.
fn layout() -> u64 {
    let mut hasher = DefaultHasher::new();
    (MEANING, TYPES).hash(&mut hasher);
    for part in PARTS {
        part.layout().hash(&mut hasher);
    }
    hasher.finish()
}

/// Why a library is refused: the number of the error that `erlang:load_nif/2` returns, which `weir_nif` explains.
enum Refused {
    Resources = 1,
    Layout = 2,
    Pin = 3,
}

/// The VM asks for this when it has loaded the file.
#[unsafe(no_mangle)]
extern "C" fn nif_init() -> *const ErlNifEntry {
    struct Entry(ErlNifEntry);
    // SAFETY: it is never written to, and what it points to is constant.
    unsafe impl Sync for Entry {}
    // SAFETY: as above.
    unsafe impl Send for Entry {}
    static ENTRY: OnceLock<Entry> = OnceLock::new();
    let entry = ENTRY.get_or_init(|| {
        // SAFETY: nobody has called a function of the VM through this library yet.
        unsafe { internal_write_symbols() };
        let functions: Vec<ErlNifFunc> = inventory::iter::<rustler::Nif>().map(rustler::Nif::get_def).collect();
        let mut entry = ErlNifEntry::new(c"weir_nif", functions.leak(), load);
        entry.upgrade = Some(upgrade);
        Entry(entry)
    });
    &entry.0
}

/// There is no module that has a library: the first, or one after the module was purged.
unsafe extern "C" fn load(env: *mut ErlNifEnv, _data: *mut *mut c_void, _info: ErlNifTerm) -> c_int {
    begin(env)
}

/// The module has a library, and gets this one.
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

/// Goes on with the statics of the first library, if that was another one.
fn take_over() -> Result<(), Refused> {
    let ours = weir_nif_handover_1();
    let Some(first) = first_handover() else { return pin(libc::RTLD_GLOBAL) };
    if std::ptr::eq(first, ours) {
        return pin(libc::RTLD_GLOBAL);
    }
    // SAFETY: libraries are never unmapped, and the first words are the same in all versions.
    let (layout, count) = unsafe { ((*first).layout, (*first).count) };
    // SAFETY: ours is a static.
    if layout != unsafe { (*ours).layout } || count != PARTS.len() {
        return Err(Refused::Layout);
    }
    pin(0)?;
    for (at, part) in PARTS.iter().enumerate() {
        // SAFETY: the layout says that these are the same parts, and no function of this library has been called yet.
        unsafe { part.take_over((*first).parts[at]) };
    }
    Ok(())
}

/// What the first library of the process says. Before that has made its symbols known to others, a library finds its own.
fn first_handover() -> Option<*const Handover> {
    // SAFETY: the name is a string of C.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, HANDOVER_SYMBOL.as_ptr()) };
    if symbol.is_null() {
        return None;
    }
    // SAFETY: under this name there is nothing but this function.
    let handover = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> *const Handover>(symbol) };
    Some(handover())
}

/// Keeps this library mapped for as long as the process lives.
fn pin(visibility: c_int) -> Result<(), Refused> {
    let mut about =
        libc::Dl_info { dli_fname: null(), dli_fbase: null_mut(), dli_sname: null(), dli_saddr: null_mut() };
    // SAFETY: the address is in this library; the name that is found lives as long as it is mapped.
    let pinned = unsafe {
        libc::dladdr(weir_nif_handover_1 as *const c_void, &mut about) != 0
            && !libc::dlopen(about.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE | visibility)
                .is_null()
    };
    if pinned { Ok(()) } else { Err(Refused::Pin) }
}

fn open_resources(env: *mut ErlNifEnv) -> Result<(), Refused> {
    // SAFETY: this is called by `load` and `upgrade`.
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

/// Has queued output sent when the VM halts. Since OTP 26 the VM calls libraries that ask for it, unless it is to halt without
/// flushing. Before, it can only be seen that the process exits, for any reason.
fn flush_at_halt(env: *mut ErlNifEnv) {
    // SAFETY: the name is a string of C.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"enif_set_option".as_ptr()) };
    if symbol.is_null() {
        static REGISTERED: OnceLock<c_int> = OnceLock::new();
        // SAFETY: the function lives as long as the process, since the library is pinned.
        REGISTERED.get_or_init(|| unsafe { libc::atexit(on_exit) });
        return;
    }
    // SAFETY: under this name the VM has nothing but this function, and the environment is that of `load` or `upgrade`.
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

/// Whether this library is the one of the module that asks: the function that it replaces cannot say so.
#[rustler::nif]
fn loaded() -> bool {
    true
}
