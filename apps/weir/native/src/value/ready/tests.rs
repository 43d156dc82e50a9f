use super::super::handle::Handle;
use super::*;

fn socket(slot: u32, generation: u32) -> Target {
    Target::Socket(Handle::new(slot, generation))
}

fn asleep(bulk: bool) -> (Ready<char>, u32) {
    let ready = Ready::new();
    let token = ready.claim('a');
    assert_eq!(ready.sleep(token, bulk, || true), Sleep::Asleep);
    (ready, token)
}

#[test]
fn a_poll_takes_what_was_pushed_in_order() {
    let ready = Ready::new();
    let token = ready.claim('a');
    let targets = [socket(3, 0), socket(1, 7), socket(3, 0)];
    for target in targets {
        assert_eq!(ready.push(target), Wake::Nobody);
    }
    assert_eq!(ready.sleep(token, false, || panic!("it has work")), Sleep::Busy);
    assert_eq!(ready.take(token, Instant::now()).expect("ours").list, targets);
    assert!(ready.take(token, Instant::now()).expect("ours").list.is_empty());
}

#[test]
fn what_is_put_back_comes_first() {
    let ready = Ready::new();
    let token = ready.claim('a');
    ready.push(socket(3, 0));
    ready.put_back(VecDeque::from([socket(1, 0), socket(2, 0)]));
    let list = ready.take(token, Instant::now()).expect("ours").list;
    assert_eq!(list, [socket(1, 0), socket(2, 0), socket(3, 0)]);
}

#[test]
fn a_sleeping_poller_is_woken_once() {
    let (ready, token) = asleep(false);
    assert_eq!(ready.push(socket(0, 0)), Wake::Poller('a'));
    assert_eq!(ready.push(socket(1, 0)), Wake::Nobody);
    assert!(matches!(ready.duty(true, Instant::now()), Duty::Rest(Some(_))));
    assert!(ready.take(token, Instant::now()).expect("ours").slept.is_some());
    assert_eq!(ready.push(socket(0, 0)), Wake::Nobody);
}

#[test]
fn the_kernels_events_wake_a_sleeping_poller() {
    let (ready, _) = asleep(false);
    assert_eq!(ready.duty(false, Instant::now()), Duty::Rest(None));
    assert_eq!(ready.duty(true, Instant::now()), Duty::Summon('a'));
    assert!(matches!(ready.duty(true, Instant::now()), Duty::Rest(Some(_))));
}

#[test]
fn streams_have_time_to_move_more_before_the_poller_is_woken() {
    let ready = Ready::new();
    let token = ready.claim('a');
    ready.polled(Instant::now(), true);
    assert_eq!(ready.sleep(token, false, || true), Sleep::Asleep);
    assert_eq!(ready.duty(false, Instant::now()), Duty::Rest(None));
    assert_eq!(ready.duty(true, Instant::now()), Duty::Gather(GATHER));
    assert_eq!(ready.duty(true, Instant::now()), Duty::Summon('a'));
    // A pushed target does not wait.
    ready.polled(Instant::now(), true);
    assert!(ready.take(token, Instant::now()).is_some());
    assert_eq!(ready.sleep(token, false, || true), Sleep::Asleep);
    assert_eq!(ready.duty(true, Instant::now()), Duty::Gather(GATHER));
    assert_eq!(ready.push(socket(0, 0)), Wake::Poller('a'));
}

#[test]
fn a_substitute_serves_and_is_woken_once() {
    let (ready, token) = asleep(true);
    assert_eq!(ready.duty(true, Instant::now()), Duty::Serve(VecDeque::new()));
    assert_eq!(ready.push(socket(0, 0)), Wake::Thread);
    assert_eq!(ready.push(socket(1, 0)), Wake::Nobody);
    assert_eq!(ready.duty(false, Instant::now()), Duty::Serve(VecDeque::from([socket(0, 0), socket(1, 0)])));
    assert_eq!(ready.resign(), Some('a'));
    assert_eq!(ready.resign(), None);
    assert!(ready.take(token, Instant::now()).is_some());
}

#[test]
fn a_substitute_has_the_poller_look_after_a_while() {
    let (ready, _) = asleep(true);
    assert_eq!(ready.duty(true, Instant::now() + TERM), Duty::Summon('a'));
}

#[test]
fn the_thread_serves_for_a_poller_that_does_not_come() {
    let (ready, token) = asleep(false);
    assert_eq!(ready.duty(true, Instant::now()), Duty::Summon('a'));
    ready.push(socket(0, 0));
    let late = Instant::now() + STALL;
    assert_eq!(ready.duty(false, late), Duty::Serve(VecDeque::from([socket(0, 0)])));
    assert_eq!(ready.duty(false, late), Duty::Watch(STALL));
    assert_eq!(ready.duty(true, late), Duty::Serve(VecDeque::new()));
    assert!(ready.take(token, Instant::now()).expect("ours").list.is_empty());
    ready.polled(late, false);
    assert_eq!(ready.duty(true, late), Duty::Rest(Some(STALL)));
    // An awake poller may stop, too.
    assert_eq!(ready.duty(false, late + STALL), Duty::Watch(STALL));
}

#[test]
fn what_is_kept_is_the_pollers() {
    let (ready, token) = asleep(true);
    ready.keep(socket(5, 0));
    ready.push(socket(6, 0));
    assert_eq!(ready.duty(true, Instant::now()), Duty::Serve(VecDeque::from([socket(6, 0)])));
    assert_eq!(ready.take(token, Instant::now()).expect("ours").list, [socket(5, 0)]);
    ready.keep(socket(5, 0));
    assert_eq!(ready.sleep(token, false, || panic!("it has work")), Sleep::Busy);
}

#[test]
fn nobody_sleeps_unwatched() {
    let ready = Ready::new();
    let token = ready.claim('a');
    assert_eq!(ready.sleep(token, false, || false), Sleep::Busy);
    assert_eq!(ready.push(socket(0, 0)), Wake::Nobody);
}

#[test]
fn a_successor_makes_the_token_stale() {
    let (ready, old) = asleep(false);
    let new = ready.claim('b');
    assert_eq!(ready.push(socket(0, 0)), Wake::Nobody);
    assert!(ready.take(old, Instant::now()).is_none());
    assert_eq!(ready.sleep(old, false, || panic!("it is not the poller")), Sleep::Stale);
    assert_eq!(ready.take(new, Instant::now()).expect("ours").list.len(), 1);
}
