//! The load driver; see the library's `drive` module.

use std::process::ExitCode;

use weir_bench_native::{command_line, drive};

fn main() -> ExitCode {
    command_line::run("weir-drive", || {
        drive::main(std::env::args_os().skip(1).collect())
    })
}
