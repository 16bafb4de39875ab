//! Header fields of a stranger: those of one hop end here, those a proxy relies on do not.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|named: Vec<(Vec<u8>, Vec<u8>)>| weir_gateway::fuzzing::fields(&named));
