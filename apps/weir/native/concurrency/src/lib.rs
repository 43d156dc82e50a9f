//! The engine's modules that several threads use at once, unchanged from `../src`, with models of
//! the sockets, groups and listeners that use them, which need neither kernel nor VM.

#[path = "../../src/value/arrivals.rs"]
pub mod arrivals;
#[path = "../../src/value/division.rs"]
pub mod division;
pub mod group;
#[path = "../../src/value/handle.rs"]
pub mod handle;
pub mod listener;
#[path = "../../src/value/places.rs"]
pub mod places;
#[path = "../../src/value/ready.rs"]
pub mod ready;
#[path = "../../src/value/slots.rs"]
pub mod slots;
pub mod socket;
pub mod sync;
#[path = "../../src/value/vacancies.rs"]
pub mod vacancies;
