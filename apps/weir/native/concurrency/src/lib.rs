//! The modules of the engine that several threads use at once, as they are in `../src`, with something to put into them:
//! sockets that are numbers where the engine's need a kernel and a VM.

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
