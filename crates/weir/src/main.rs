//! The `weir` command; see the library.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    weir::main()
}
