//! Resources: objects whose references the VM counts, and which it calls when a process dies that
//! they monitor.
//!
//! They extend rustler's in two ways. A newer library takes over the types of the older one, so
//! that existing objects call its code. And an object that was made before the module was purged
//! and loaded again can still be decoded.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use rustler::sys::{
    self, ErlNifEnv, ErlNifMonitor, ErlNifPid, ErlNifResourceDown, ErlNifResourceDtor, ErlNifResourceFlags,
    ErlNifResourceType, ErlNifResourceTypeInit,
};
use rustler::{Binary, Decoder, Encoder, Env, Error, LocalPid, Monitor, NifResult, Term};

use crate::value::shared::Shared;
use crate::value::sync::Mutex;

/// A type that can be a resource.
pub trait Resource: Sized + Send + Sync + 'static {
    /// The name by which a newer library finds the type.
    const NAME: &'static CStr;

    /// Whether its objects monitor processes.
    const WATCHES: bool = false;

    /// The VM's resource type.
    fn kind() -> &'static Shared<Kind>;

    /// Called when a monitored process has died.
    fn down(&self, _env: Env, _monitor: Monitor) {}
}

/// A resource type.
pub struct Kind {
    current: AtomicPtr<ErlNifResourceType>,
    /// One object has been leaked to keep the type from being freed, so that its address is not
    /// reused.
    kept: AtomicBool,
    /// Types from before the module was purged, whose objects live on.
    purged: Mutex<Vec<AtomicPtr<ErlNifResourceType>>>,
}

impl Kind {
    /// A type that is not registered yet.
    pub const fn new() -> Kind {
        Kind { current: AtomicPtr::new(null_mut()), kept: AtomicBool::new(false), purged: Mutex::new(Vec::new()) }
    }

    fn current(&self) -> *const ErlNifResourceType {
        self.current.load(Ordering::Acquire)
    }

    /// Whether the current or any earlier type satisfies `test`. Usually the current one does.
    fn any(&self, mut test: impl FnMut(*const ErlNifResourceType) -> bool) -> bool {
        test(self.current()) || {
            let purged = self.purged.lock().unwrap_or_else(PoisonError::into_inner);
            purged.iter().any(|kind| test(kind.load(Ordering::Relaxed)))
        }
    }
}

/// Registers a resource type, or takes over an existing one. False if the VM refuses.
///
/// # Safety
///
/// The environment is that of the callback `load` or `upgrade`.
pub unsafe fn open<T: Resource>(env: *mut ErlNifEnv) -> bool {
    // The VM aligns objects for any C type.
    const { assert!(align_of::<T>() <= 8) };
    let init = ErlNifResourceTypeInit {
        dtor: destructor::<T> as *const ErlNifResourceDtor,
        stop: std::ptr::null(),
        down: if T::WATCHES { down::<T> as *const ErlNifResourceDown } else { std::ptr::null() },
        members: 3,
        dyncall: std::ptr::null(),
    };
    let try_to = |flags| {
        let mut tried = MaybeUninit::uninit();
        // SAFETY: the caller vouches for the environment; name and callbacks are of the types that the VM wants, and
        // outlive the call.
        unsafe { sys::enif_init_resource_type(env, T::NAME.as_ptr(), &init, flags, tried.as_mut_ptr()) }
    };
    let mut opened = try_to(ErlNifResourceFlags::ERL_NIF_RT_TAKEOVER);
    if opened.is_null() {
        opened = try_to(ErlNifResourceFlags::ERL_NIF_RT_CREATE);
    }
    if opened.is_null() {
        return false;
    }
    let kind = T::kind();
    let before = kind.current.swap(opened.cast_mut(), Ordering::AcqRel);
    if before != opened.cast_mut() && kind.kept.swap(false, Ordering::AcqRel) {
        kind.purged.lock().unwrap_or_else(PoisonError::into_inner).push(AtomicPtr::new(before));
    }
    true
}

unsafe extern "C" fn destructor<T: Resource>(_env: *mut ErlNifEnv, object: *mut sys::c_void) {
    // SAFETY: the VM destroys an object of this type once, when no reference is left.
    let _ = catch_unwind(|| unsafe { object.cast::<T>().drop_in_place() });
}

unsafe extern "C" fn down<T: Resource>(
    env: *mut ErlNifEnv,
    object: *mut sys::c_void,
    _pid: *const ErlNifPid,
    monitor: *const ErlNifMonitor,
) {
    // SAFETY: object and monitor are of this type and live for the call, as does the environment.
    let (env, object, monitor) = unsafe { (Env::new(&env, env), &*object.cast::<T>(), Monitor::new(*monitor)) };
    // A panic must not unwind into the VM.
    let _ = catch_unwind(AssertUnwindSafe(|| object.down(env, monitor)));
}

/// A reference to an object. The object is dropped with the last reference, including those in
/// terms.
pub struct ResourceArc<T: Resource> {
    object: *mut sys::c_void,
    of: PhantomData<T>,
}

// SAFETY: objects are Send and Sync, and the VM counts references to them atomically.
unsafe impl<T: Resource> Send for ResourceArc<T> {}
// SAFETY: as above.
unsafe impl<T: Resource> Sync for ResourceArc<T> {}

impl<T: Resource> ResourceArc<T> {
    /// Creates an object.
    pub fn new(value: T) -> ResourceArc<T> {
        let kind = T::kind();
        if !kind.kept.load(Ordering::Relaxed) && !kind.kept.swap(true, Ordering::AcqRel) {
            // SAFETY: the type is one of the VM's. This object is never released and so never
            // dropped: it may be uninitialised.
            let _ = unsafe { sys::enif_alloc_resource(kind.current(), size_of::<T>()) };
        }
        // SAFETY: the type is one of the VM's, and what it returns has room for the value and is aligned for it.
        let object = unsafe {
            let object = sys::enif_alloc_resource(kind.current(), size_of::<T>());
            object.cast::<T>().write(value);
            object
        };
        ResourceArc { object, of: PhantomData }
    }

    /// A binary that keeps the object alive.
    pub fn make_binary<'a>(&self, env: Env<'a>, bytes: impl FnOnce(&T) -> &[u8]) -> Binary<'a> {
        let bytes = bytes(self);
        // SAFETY: the bytes are the object's, which does not change them and lives as long as the binary.
        let term = unsafe {
            let binary =
                sys::enif_make_resource_binary(env.as_c_arg(), self.object, bytes.as_ptr().cast(), bytes.len());
            Term::new(env, binary)
        };
        match Binary::from_term(term) {
            Ok(binary) => binary,
            Err(_) => unreachable!("a binary is a binary"),
        }
    }

    /// Monitors a process. `None` if it is dead.
    pub fn monitor(&self, env: Option<Env>, pid: &LocalPid) -> Option<Monitor> {
        let mut monitor = MaybeUninit::uninit();
        // SAFETY: the object is alive, and the VM fills in the monitor if it returns zero.
        unsafe {
            let result = sys::enif_monitor_process(caller(env), self.object, pid.as_c_arg(), monitor.as_mut_ptr());
            (result == 0).then(|| Monitor::new(monitor.assume_init()))
        }
    }

    /// Removes a monitor. False if the process has died already.
    pub fn demonitor(&self, env: Option<Env>, monitor: &Monitor) -> bool {
        // SAFETY: the object is alive.
        unsafe { sys::enif_demonitor_process(caller(env), self.object, monitor.as_c_arg()) == 0 }
    }
}

/// The environment for the VM: that of the call on its own threads, none on others.
fn caller(env: Option<Env>) -> *mut ErlNifEnv {
    match env {
        Some(env) if rustler::thread::is_scheduler_thread() => env.as_c_arg(),
        _ => null_mut(),
    }
}

impl<T: Resource> Deref for ResourceArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the object lives as long as there are references.
        unsafe { &*self.object.cast() }
    }
}

impl<T: Resource> Drop for ResourceArc<T> {
    fn drop(&mut self) {
        // SAFETY: this is the reference that was taken when it was made.
        unsafe { sys::enif_release_resource(self.object) };
    }
}

impl<T: Resource> Encoder for ResourceArc<T> {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        // SAFETY: the object is alive, and the term belongs to the environment it is made in.
        unsafe { Term::new(env, sys::enif_make_resource(env.as_c_arg(), self.object)) }
    }
}

impl<'a, T: Resource> Decoder<'a> for ResourceArc<T> {
    fn decode(term: Term<'a>) -> NifResult<ResourceArc<T>> {
        let mut object = MaybeUninit::uninit();
        // SAFETY: the VM fills in the object if it is of that type.
        let found = T::kind().any(|kind| unsafe {
            sys::enif_get_resource(term.get_env().as_c_arg(), term.as_c_arg(), kind, object.as_mut_ptr()) != 0
        });
        if !found {
            return Err(Error::BadArg);
        }
        // SAFETY: it was found, and the term keeps the object alive during the call.
        let object = unsafe {
            let object = object.assume_init();
            sys::enif_keep_resource(object);
            object.cast_mut()
        };
        Ok(ResourceArc { object, of: PhantomData })
    }
}
