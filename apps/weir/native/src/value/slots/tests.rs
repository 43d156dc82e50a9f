use super::*;

struct Guest {
    handle: Handle,
    open: bool,
    abandoned: bool,
}

impl Occupant for Guest {
    fn vacant(slot: u32, generation: u32) -> Guest {
        Guest { handle: Handle::new(slot, generation), open: false, abandoned: false }
    }
    fn handle(&self) -> Handle {
        self.handle
    }
    fn is_open(&self) -> bool {
        self.open
    }
    fn abandoned(&mut self) {
        self.abandoned = true;
    }
    fn here() -> usize {
        0
    }
}

type House = Slots<Guest, 2, 2>;

fn house() -> House {
    Slots::new(Mutex::new(Common::new()))
}

fn open(house: &House) -> Option<Handle> {
    house.allocate().map(|mut guest| {
        guest.open = true;
        guest.handle
    })
}

fn close(house: &House, handle: Handle) {
    let Lookup::Open(mut guest) = house.lookup(handle) else { panic!("{handle:?} is not open") };
    guest.open = false;
}

/// The handle of the slot's next occupant.
fn after(handle: Handle) -> Handle {
    Handle::new(handle.slot(), handle.generation().wrapping_add(1))
}

#[test]
fn a_slot_is_used_again_under_another_name() {
    let house = house();
    let first = open(&house).expect("room");
    close(&house, first);
    assert!(matches!(house.lookup(first), Lookup::Gone));
    let second = open(&house).expect("room");
    assert_eq!(second, after(first));
    assert!(matches!(house.lookup(first), Lookup::Gone));
    assert!(matches!(house.lookup(second), Lookup::Open(_)));
}

#[test]
fn names_that_were_never_given_name_nothing() {
    let house = house();
    let origin = house.origin();
    assert!(matches!(house.lookup(Handle::new(0, origin)), Lookup::Never));
    let handle = open(&house).expect("room");
    assert!(matches!(house.lookup(after(handle)), Lookup::Never));
    assert!(matches!(house.lookup(Handle::new(1, origin)), Lookup::Never));
    assert!(matches!(house.lookup(Handle::new(3, origin)), Lookup::Never));
    assert!(matches!(house.lookup(Handle::new(0, origin.wrapping_sub(1))), Lookup::Never));
}

#[test]
fn generations_wrap_around() {
    let house = house();
    house.origin.set(u32::MAX - 1).expect("not used yet");
    let handles: Vec<Handle> = (0..4).map_while(|_| open(&house).inspect(|&handle| close(&house, handle))).collect();
    assert_eq!(handles.last().map(|handle| handle.generation()), Some(1));
    assert!(handles.iter().all(|&handle| matches!(house.lookup(handle), Lookup::Gone)));
    assert!(matches!(house.lookup(Handle::new(0, 2)), Lookup::Never));
    assert!(matches!(house.lookup(Handle::new(0, u32::MAX - 2)), Lookup::Never));
}

#[test]
fn tables_have_other_names_than_each_other() {
    let origins: std::collections::HashSet<u32> = (0..8).map(|_| house().origin()).collect();
    assert!(origins.len() > 1);
}

#[test]
fn two_are_found_at_once_in_either_order() {
    let house = house();
    let (one, other) = (open(&house).expect("room"), open(&house).expect("room"));
    for (one, other) in [(one, other), (other, one)] {
        let (Lookup::Open(first), Lookup::Open(second)) = house.lookup_both(one, other) else {
            panic!("both are open")
        };
        assert_eq!((first.handle, second.handle), (one, other));
    }
}

#[test]
fn two_of_one_slot_are_not_both_found() {
    let house = house();
    let old = open(&house).expect("room");
    close(&house, old);
    let new = open(&house).expect("room");
    assert!(matches!(house.lookup_both(old, new), (Lookup::Gone, Lookup::Open(_))));
    assert!(matches!(house.lookup_both(new, old), (Lookup::Open(_), Lookup::Gone)));
    assert!(matches!(house.lookup_both(new, after(new)), (Lookup::Open(_), Lookup::Never)));
}

#[test]
fn who_has_the_lock_has_the_one_that_ended_and_no_other() {
    let house = house();
    let handle = open(&house).expect("room");
    let mut guest = house.find(handle).expect("open");
    guest.open = false;
    assert_eq!(guest.handle(), handle);
    // Changes to it no longer have an effect.
    guest.abandoned = true;
    assert_eq!(house.occupied(), 1);
    drop(guest);
    assert_eq!(house.occupied(), 0);
    let next = open(&house).expect("room");
    assert_eq!(next, after(handle));
    assert!(!house.find(next).expect("open").abandoned);
}

#[test]
fn a_slot_in_which_nothing_was_opened_is_vacant_again() {
    let house = house();
    let handle = house.allocate().expect("room").handle();
    assert_eq!(house.occupied(), 0);
    assert_eq!(open(&house), Some(after(handle)));
}

#[test]
fn a_panic_leaves_an_occupant_that_knows_it() {
    let house = house();
    let handles: Vec<Handle> = (0..3).map_while(|_| open(&house)).collect();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _worked_on = house.find(handles[0]).expect("open");
        house.find(handles[1]).expect("open").open = false;
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panicked.is_err());
    assert!(house.find(handles[0]).expect("open").abandoned);
    assert!(house.find(handles[1]).is_none());
    assert!(!house.find(handles[2]).expect("open").abandoned);
    // Also for a visit that does not wait for locks.
    let mut seen = Vec::new();
    assert_eq!(house.visit_unlocked(0, |guest| seen.push(guest.handle())), Some(0));
    assert_eq!(seen, [handles[0]]);
    assert_eq!(house.occupied(), 2);
}

#[test]
fn who_does_not_wait_for_locks_hears_of_them() {
    let house = house();
    let handles: Vec<Handle> = (0..2).map_while(|_| open(&house)).collect();
    let guard = house.find(handles[0]);
    let mut seen = Vec::new();
    assert_eq!(house.visit_unlocked(0, |guest| seen.push(guest.handle())), Some(1));
    assert_eq!(seen, [handles[1]]);
    drop(guard);
    assert_eq!(house.visit_unlocked(0, |_| {}), Some(0));
    assert_eq!(house.visit_unlocked(1, |_| {}), None);
}

#[test]
fn a_full_table_has_room_after_a_close() {
    let house = house();
    let handles: Vec<Handle> = std::iter::from_fn(|| open(&house)).collect();
    assert_eq!(handles.len(), 4);
    close(&house, handles[2]);
    assert_eq!(open(&house), Some(after(handles[2])));
    assert_eq!(open(&house), None);
}

#[test]
fn chunks_are_listed_one_by_one() {
    let house = house();
    assert_eq!(house.handles(0), None);
    let handles: Vec<Handle> = (0..3).map_while(|_| open(&house)).collect();
    close(&house, handles[0]);
    assert_eq!(house.handles(0), Some(vec![handles[1]]));
    assert_eq!(house.handles(1), Some(vec![handles[2]]));
    assert_eq!(house.handles(2), None);
}
