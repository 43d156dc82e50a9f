//! Values: no VM, no kernel. Each is tested by itself, under loom or by a fuzzer.

pub mod active;
pub mod admission;
pub mod counters;
pub mod division;
pub mod handle;
pub mod http;
pub mod input_buffer;
pub mod membership;
pub mod options;
pub mod packet;
pub mod ready;
pub mod send_queue;
pub mod slots;
pub mod statistics;
pub mod sync;
pub mod work;
