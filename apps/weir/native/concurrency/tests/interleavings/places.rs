//! The places of a listener: callers on several schedulers take, free and wait for places, while
//! the limit changes.

use loom::model;
use loom::sync::Arc;
use loom::thread;

use weir_concurrency::places::Places;

#[test]
fn who_waits_has_the_place_or_is_told_of_it() {
    model(|| {
        let places = Arc::new(Places::new(1, 2));
        assert!(places.take(0));
        let waiter = {
            let places = places.clone();
            thread::spawn(move || places.take_or_wait(1))
        };
        let told = places.give(0);
        let taken = waiter.join().expect("no panic");
        assert!(taken || told);
        assert_eq!(places.take(1), !taken);
        assert!(!places.take(0));
    });
}

#[test]
fn one_place_has_one_taker() {
    model(|| {
        let places = Arc::new(Places::new(2, 2));
        assert!(places.take(0) && places.take(0));
        let _ = places.give(0);
        let takers = [0, 1].map(|here| {
            let places = places.clone();
            thread::spawn(move || places.take(here))
        });
        let _ = places.give(1);
        let taken = takers.into_iter().map(|taker| taker.join().expect("no panic")).filter(|&taken| taken).count();
        let rest = (0..3).filter(|&here| places.take(here)).count();
        assert_eq!(taken + rest, 2);
    });
}

#[test]
fn a_place_given_back_while_there_are_fewer_is_none() {
    model(|| {
        let places = Arc::new(Places::new(2, 2));
        assert!(places.take(0) && places.take(1));
        let leaver = {
            let places = places.clone();
            thread::spawn(move || places.give(0))
        };
        places.set_max(1);
        let _ = leaver.join().expect("no panic");
        assert!(!places.take(0) && !places.take(1));
        let _ = places.give(1);
        assert!(places.take(0));
        assert!(!places.take(1));
    });
}
