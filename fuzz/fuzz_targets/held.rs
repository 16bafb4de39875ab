//! A record of the kernel's ring: read within its bounds or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|record: &[u8]| weir_linux::fuzzing::held(record));
