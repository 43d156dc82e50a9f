//! The reference servers; see the library's `reference` module.

use std::process::ExitCode;

use weir_bench_native::{command_line, reference};

fn main() -> ExitCode {
    command_line::run("weir-reference", || {
        reference::main(std::env::args_os().skip(1).collect())
    })
}
