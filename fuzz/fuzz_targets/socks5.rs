//! A SOCKS5 client that says anything: it is served or refused in few steps and bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|said: (bool, &[u8])| weir_gateway::fuzzing::socks5(said.0, said.1));
